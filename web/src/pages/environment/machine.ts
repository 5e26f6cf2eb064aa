import { useCaller } from "../../lib/caller";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import type { Draft, WrongField } from "./draft";

const MachineQuery = graphql(`
  query EnvironmentMachine {
    cluster {
      kind
      coreMHz
      largestRunner {
        cpuMHz
        memoryMiB
        processes
        workspaceMiB
      }
      hostInterpreters
    }
  }
`);

/** Machine is the reported capacity for one runner. */
export type Machine = ResultOf<typeof MachineQuery>["cluster"];

export const unknownMachine: Machine = { kind: "", coreMHz: null, largestRunner: null, hostInterpreters: [] };

/** useMachine returns what the server reports of the cluster, or unknownMachine for callers without that access. */
export function useMachine(): Machine {
  const { may } = useCaller();
  const { data } = useQuery(MachineQuery, {}, { skip: !may("cluster") });
  return data?.cluster ?? unknownMachine;
}

/** scaled converts a stored amount to a larger unit. It returns other texts unchanged. */
export function scaled(stored: string, factor: number): string {
  if (!/^-?\d+$/.test(stored)) return stored;
  const amount = Number(stored) / factor;
  return String(Math.abs(amount) >= 1 ? Math.round(amount * 1000) / 1000 : Number(amount.toPrecision(3)));
}

/** unscaled converts an amount in a larger unit to the stored one. It returns other texts unchanged. */
export function unscaled(typed: string, factor: number): string {
  return /^-?(\d+\.?\d*|\.\d+)$/.test(typed.trim()) ? String(Math.round(Number(typed) * factor)) : typed;
}

/** cpu describes an amount of CPU, in cores if a core's clock is known, else in MHz. */
export function cpu(mhz: string, { coreMHz }: Machine): string {
  const cores = coreMHz && scaled(mhz, coreMHz);
  return cores ? `${cores} ${cores === "1" ? "core" : "cores"}` : `${mhz} MHz`;
}

/** misfits returns the fields that exceed the largest possible runner. */
export function misfits(draft: Draft, machine: Machine): WrongField[] {
  const most = machine.largestRunner;
  if (!most) return [];
  const resources = [
    ["cpuMHz", cpu(String(most.cpuMHz), machine)],
    ["memoryMiB", `${most.memoryMiB} MiB`],
    ["processes", `${most.processes} processes`],
    ["workspaceMiB", `${most.workspaceMiB} MiB`],
  ] as const;
  return resources
    .filter(([key]) => Number(draft[key]) > most[key])
    .map(([key, limit]) => ({ field: `resources.${key}`, message: `must be at most ${limit}: a larger runner doesn't fit into the cluster and would never start` }));
}
