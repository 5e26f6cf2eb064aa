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

/** What is known of where runners live. */
export type Machine = ResultOf<typeof MachineQuery>["cluster"];

export const unknownMachine: Machine = { kind: "", coreMHz: null, largestRunner: null, hostInterpreters: [] };

/** What the server reports of the cluster; nothing is known to callers that may not see it. */
export function useMachine(): Machine {
  const { may } = useCaller();
  const { data } = useQuery(MachineQuery, {}, { skip: !may("cluster") });
  return data?.cluster ?? unknownMachine;
}

/** A stored amount in a larger unit; a text that is no amount stays as it is. */
export function scaled(stored: string, factor: number): string {
  if (!/^-?\d+$/.test(stored)) return stored;
  const amount = Number(stored) / factor;
  return String(Math.abs(amount) >= 1 ? Math.round(amount * 1000) / 1000 : Number(amount.toPrecision(3)));
}

/** What is stored of an amount in a larger unit; a text that is no amount stays as it is. */
export function unscaled(typed: string, factor: number): string {
  return /^-?(\d+\.?\d*|\.\d+)$/.test(typed.trim()) ? String(Math.round(Number(typed) * factor)) : typed;
}

/** An amount of CPU in words: in cores where a core's clock is known. */
export function cpu(mhz: string, { coreMHz }: Machine): string {
  const cores = coreMHz && scaled(mhz, coreMHz);
  return cores ? `${cores} ${cores === "1" ? "core" : "cores"}` : `${mhz} MHz`;
}

/** The fields that want more than any runner can be given. */
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
    .map(([key, limit]) => ({ field: `resources.${key}`, message: `must be at most ${limit}: the cluster has no more for one runner, so none would ever start` }));
}
