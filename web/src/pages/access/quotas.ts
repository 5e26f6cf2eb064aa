import { bytes, count, duration } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";

export const TenantFragment = graphql(`
  fragment TenantParts on Tenant {
    id
    weight
    createdAt
    quotas {
      runners
      waiting
      executions
      claimsPerMinute
      cpuSecondsPerDay
      outputBytesPerDay
      subscriptions
      poolRunners
      memoryMiB
      cpuMHz
    }
    use {
      runners
      waiting
      executions
      claimsPerMinute
      cpuSecondsPerDay
      outputBytesPerDay
      subscriptions
      poolRunners
      memoryMiB
      cpuMHz
    }
  }
`);
export type Tenant = ResultOf<typeof TenantFragment>;
export type Quotas = Tenant["quotas"];
export type Quota = keyof Quotas;

/** quotas lists the quotas with their labels and the format of their numbers; `per` follows a number. */
export const quotas: readonly { name: Quota; label: string; unit: string; hint: string; shown: (n: number) => string; per?: string }[] = [
  { name: "runners", label: "Runners", unit: "at a time", hint: "Runners held at a time.", shown: count },
  { name: "waiting", label: "Waiting claims", unit: "at a time", hint: "Claims that wait for a runner.", shown: count },
  { name: "executions", label: "Executions", unit: "at a time", hint: "Executions that haven't ended.", shown: count },
  { name: "claimsPerMinute", label: "Claims", unit: "a minute", hint: "Claims in any 60 seconds.", shown: count, per: "a minute" },
  { name: "cpuSecondsPerDay", label: "Processor time", unit: "s a day", hint: "Of all executions that end on the same day (UTC).", shown: (n) => duration(n * 1000), per: "a day" },
  { name: "outputBytesPerDay", label: "Output", unit: "bytes a day", hint: "Output of all executions that end on the same day (UTC).", shown: bytes, per: "a day" },
  { name: "subscriptions", label: "Subscriptions", unit: "at a time", hint: "Open subscriptions.", shown: count },
  { name: "poolRunners", label: "Pool runners", unit: "in all", hint: "The pool sizes of all environments together.", shown: count },
  { name: "memoryMiB", label: "Memory", unit: "MiB", hint: "Reserved by pools at their full size, and by held runners.", shown: (n) => bytes(n * 2 ** 20) },
  { name: "cpuMHz", label: "CPU", unit: "MHz", hint: "Reserved by pools at their full size, and by held runners.", shown: (n) => `${count(n)} MHz` },
];

/** TenantDraft is the form's content as it was typed. An empty quota means no limit. */
export interface TenantDraft {
  id: string;
  weight: string;
  quotas: Record<Quota, string>;
}

/** quotaUse returns a tenant's use of a quota: "3 of 10 a minute". */
export function quotaUse({ quotas: bounds, use }: Pick<Tenant, "quotas" | "use">, name: Quota): { used: number; bound: number | null; text: string } {
  const { shown, per } = quotas.find((quota) => quota.name === name)!;
  const bound = bounds[name];
  const full = (n: number) => [shown(n), per].filter(Boolean).join(" ");
  const text = bound === null ? `${full(use[name])}, no limit` : `${shown(use[name])} of ${full(bound)}`;
  return { used: use[name], bound, text };
}

/** draftOf returns the form's content for a tenant. Without one, it is that of a new tenant. */
export function draftOf(tenant: Pick<Tenant, "id" | "weight" | "quotas"> | undefined): TenantDraft {
  const text = (name: Quota) => tenant?.quotas[name]?.toString() ?? "";
  return {
    id: tenant?.id ?? "",
    weight: String(tenant?.weight ?? 1),
    quotas: Object.fromEntries(quotas.map(({ name }) => [name, text(name)])) as Record<Quota, string>,
  };
}

/** TenantInput is a tenant as the API takes it. A quota that is null has no limit. */
export interface TenantInput {
  id: string;
  weight: number;
  quotas: Quotas;
}
export interface WrongField {
  field: string;
  message: string;
}

/** inputOf converts the form, or returns the first field without a valid number. The server checks the ranges. */
export function inputOf(draft: TenantDraft): TenantInput | WrongField {
  let wrong: WrongField | undefined;
  const whole = (field: string, text: string): number => {
    if (!/^\d{1,16}$/.test(text.trim())) wrong ??= { field, message: "must be a whole number" };
    return Number(text);
  };
  const input: TenantInput = {
    id: draft.id.trim(),
    weight: whole("weight", draft.weight),
    quotas: Object.fromEntries(quotas.map(({ name }) => [name, draft.quotas[name].trim() === "" ? null : whole(`quotas.${name}`, draft.quotas[name])])) as Quotas,
  };
  return wrong ?? input;
}
