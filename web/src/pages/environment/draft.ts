import { graphql, type ResultOf, type VariablesOf } from "../../lib/graphql";

export const EnvironmentFragment = graphql(`
  fragment EnvironmentParts on Environment {
    id
    tenant
    shared
    revision
    image
    poolSize
    resources {
      cpuMHz
      memoryMiB
      processes
      workspaceMiB
    }
    network {
      access
      exposedPorts
      allow
      allowNames
      bandwidthMbit
    }
    isolation
    runtime
    variables {
      name
      value
    }
    warm {
      interpreter
      modules
    }
    defaultTimeLimit
    outputLimit
  }
`);
export type Parts = ResultOf<typeof EnvironmentFragment>;

export const PutMutation = graphql(
  `
    mutation PutEnvironment($input: PutEnvironmentInput!) {
      putEnvironment(input: $input) {
        created
        environment {
          ...EnvironmentParts
        }
      }
    }
  `,
  [EnvironmentFragment],
);
export type PutInput = VariablesOf<typeof PutMutation>["input"];

/** Draft is the form's content as it was typed. */
export interface Draft {
  id: string;
  /** The tenant of a new environment; "" is the caller's own. */
  tenant: string;
  shared: boolean;
  image: string;
  poolSize: string;
  cpuMHz: string;
  memoryMiB: string;
  processes: string;
  workspaceMiB: string;
  access: boolean;
  allow: string;
  allowNames: string;
  bandwidthMbit: string;
  exposedPorts: string;
  isolation: NonNullable<PutInput["isolation"]>;
  runtime: string;
  variables: { name: string; value: string }[];
  interpreter: NonNullable<PutInput["warm"]>["interpreter"];
  modules: string;
  defaultTimeLimit: string;
  outputLimit: string;
}

/** blank has the defaults of the schema. */
export const blank: Draft = {
  id: "",
  tenant: "",
  shared: false,
  image: "host",
  poolSize: "2",
  cpuMHz: "2000",
  memoryMiB: "256",
  processes: "128",
  workspaceMiB: "64",
  access: false,
  allow: "",
  allowNames: "",
  bandwidthMbit: "0",
  exposedPorts: "",
  isolation: "NAMESPACES",
  runtime: "",
  variables: [],
  interpreter: "NONE",
  modules: "",
  defaultTimeLimit: "60",
  outputLimit: "16777216",
};

/** draftOf returns the form's content for a stored environment. */
export function draftOf(parts: Parts): Draft {
  const { resources, network } = parts;
  return {
    id: parts.id,
    tenant: parts.tenant,
    shared: parts.shared,
    image: parts.image,
    poolSize: String(parts.poolSize),
    cpuMHz: String(resources.cpuMHz),
    memoryMiB: String(resources.memoryMiB),
    processes: String(resources.processes),
    workspaceMiB: String(resources.workspaceMiB),
    access: network.access,
    allow: network.allow.join(", "),
    allowNames: network.allowNames.join(", "),
    bandwidthMbit: String(network.bandwidthMbit),
    exposedPorts: network.exposedPorts.join(", "),
    isolation: parts.isolation,
    runtime: parts.runtime,
    variables: parts.variables.map(({ name, value }) => ({ name, value })),
    interpreter: parts.warm?.interpreter ?? "NONE",
    modules: parts.warm?.modules.join(", ") ?? "",
    defaultTimeLimit: String(parts.defaultTimeLimit),
    outputLimit: String(parts.outputLimit),
  };
}

/** WrongField is a field that the form can't convert, by its name in the API. */
export interface WrongField {
  field: string;
  message: string;
}

/** inputOf converts the form, or returns the first field without a valid number. The server checks the ranges. */
export function inputOf(draft: Draft, ifRevision: number): PutInput | WrongField {
  let wrong: WrongField | undefined;
  const whole = (field: string, text: string): number => {
    if (!/^-?\d{1,15}$/.test(text.trim())) wrong ??= { field, message: inParts.has(field) && Number.isNaN(Number(text)) ? "must be a number" : "must be a whole number" };
    return Number(text);
  };
  const input: PutInput = {
    id: draft.id.trim(),
    ifRevision,
    tenant: ifRevision > 0 || draft.tenant === "" ? null : draft.tenant, // an environment keeps its tenant
    shared: draft.shared,
    image: draft.image.trim(),
    poolSize: whole("poolSize", draft.poolSize),
    resources: {
      cpuMHz: whole("resources.cpuMHz", draft.cpuMHz),
      memoryMiB: whole("resources.memoryMiB", draft.memoryMiB),
      processes: whole("resources.processes", draft.processes),
      workspaceMiB: whole("resources.workspaceMiB", draft.workspaceMiB),
    },
    network: {
      access: draft.access,
      allow: listed(draft.allow),
      allowNames: listed(draft.allowNames),
      bandwidthMbit: whole("network.bandwidthMbit", draft.bandwidthMbit),
      exposedPorts: listed(draft.exposedPorts).map((port) => whole("network.exposedPorts", port)),
    },
    isolation: draft.isolation,
    runtime: draft.runtime.trim(),
    variables: draft.variables,
    warm: { interpreter: draft.interpreter, modules: draft.interpreter === "NONE" ? [] : listed(draft.modules) },
    defaultTimeLimit: whole("defaultTimeLimit", draft.defaultTimeLimit),
    outputLimit: whole("outputLimit", draft.outputLimit),
  };
  return wrong ?? input;
}

/** The fields that the form shows in cores or MiB, where fractions are possible. */
const inParts = new Set(["resources.cpuMHz", "outputLimit"]);

/** listed splits a list that is typed with commas or blanks. */
const listed = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** changed returns the names of the fields that differ between two drafts. */
export function changed(before: Draft, after: Draft): (keyof Draft)[] {
  return (Object.keys(before) as (keyof Draft)[]).filter((key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]));
}

/** consequence describes what a change does to the existing runners; "" without a change. */
export function consequence(fields: readonly (keyof Draft)[], poolSize: number, pool: { idle: number; starting: number; claimed: number; size: number }): string {
  if (fields.length === 0) return "";
  const sentences: string[] = [];
  const runners = (n: number) => `${n} idle ${n === 1 ? "runner" : "runners"}`;
  if (fields.some((field) => field !== "poolSize" && field !== "shared")) {
    const replaced = pool.idle + pool.starting;
    sentences.push(replaced === 0 ? "No runner is replaced." : `${runners(replaced)} will be replaced by new ones.`);
  } else if (poolSize < pool.idle) sentences.push(`${runners(pool.idle - poolSize)} will be removed.`);
  else if (poolSize > pool.idle + pool.starting) sentences.push(`${poolSize - pool.idle - pool.starting} more ${poolSize - pool.idle - pool.starting === 1 ? "runner" : "runners"} will be started.`);
  else sentences.push("No runner is started or removed.");
  if (pool.claimed > 0) sentences.push(`${pool.claimed} claimed ${pool.claimed === 1 ? "runner isn't" : "runners aren't"} affected.`);
  return sentences.join(" ");
}
