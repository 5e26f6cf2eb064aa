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
    }
    use {
      runners
      waiting
      executions
      claimsPerMinute
      cpuSecondsPerDay
      outputBytesPerDay
      subscriptions
    }
  }
`);
export type Tenant = ResultOf<typeof TenantFragment>;
export type Quotas = Tenant["quotas"];
export type Quota = keyof Quotas;

/** The quotas, each with what it bounds, and how its numbers are shown: with `per` after them. */
export const quotas: readonly { name: Quota; label: string; unit: string; hint: string; shown: (n: number) => string; per?: string }[] = [
  { name: "runners", label: "Runners", unit: "at once", hint: "Held at once.", shown: count },
  { name: "waiting", label: "Waiting claims", unit: "at once", hint: "Claims that wait for a runner.", shown: count },
  { name: "executions", label: "Executions", unit: "at once", hint: "That haven't ended.", shown: count },
  { name: "claimsPerMinute", label: "Claims", unit: "a minute", hint: "In any 60 seconds.", shown: count, per: "a minute" },
  { name: "cpuSecondsPerDay", label: "Processor time", unit: "s a day", hint: "Of executions that end on a day (UTC).", shown: (n) => duration(n * 1000), per: "a day" },
  { name: "outputBytesPerDay", label: "Output", unit: "bytes a day", hint: "That they printed on a day (UTC).", shown: bytes, per: "a day" },
  { name: "subscriptions", label: "Subscriptions", unit: "at once", hint: "Open at once.", shown: count },
];

/** What stands in the form: text, as it was typed. Of a quota, nothing means no limit. */
export interface TenantDraft {
  id: string;
  weight: string;
  quotas: Record<Quota, string>;
}

/** What a tenant takes of a quota, and how much it may take: "3 of 10 a minute". */
export function taken({ quotas: bounds, use }: Pick<Tenant, "quotas" | "use">, name: Quota): { used: number; bound: number | null; text: string } {
  const { shown, per } = quotas.find((quota) => quota.name === name)!;
  const bound = bounds[name];
  const full = (n: number) => [shown(n), per].filter(Boolean).join(" ");
  const text = bound === null ? `${full(use[name])}, no limit` : `${shown(use[name])} of ${full(bound)}`;
  return { used: use[name], bound, text };
}

export function draftOf(tenant: Pick<Tenant, "id" | "weight" | "quotas"> | undefined): TenantDraft {
  const text = (name: Quota) => tenant?.quotas[name]?.toString() ?? "";
  return {
    id: tenant?.id ?? "",
    weight: String(tenant?.weight ?? 1),
    quotas: Object.fromEntries(quotas.map(({ name }) => [name, text(name)])) as Record<Quota, string>,
  };
}

export interface TenantInput {
  id: string;
  weight: number;
  quotas: Quotas;
}
export interface WrongField {
  field: string;
  message: string;
}

/** What the form asks for, or the first field in which no number stands. The ranges are the server's business. */
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
