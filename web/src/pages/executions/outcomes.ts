import type { Filter } from "./useexecutions";

type Outcome = NonNullable<Filter["outcomes"]>[number];

const ended: Record<Outcome, string> = {
  EXITED: "Exited",
  SIGNALED: "Ended by a signal",
  TIME_LIMIT: "Time limit",
  CPU_LIMIT: "CPU limit",
  MEMORY_LIMIT: "Memory limit",
  PROCESS_LIMIT: "Process limit",
  OUTPUT_LIMIT: "Output limit",
  CANCELLED: "Cancelled",
  RUNNER_GONE: "Runner gone",
  LOST: "Lost",
  FAILED: "Not started",
};

/** outcomes lists the choices of the outcome filter, by their value in the address. */
export const outcomes: readonly (readonly [value: string, text: string])[] = [["failed", "Failed"], ["succeeded", "Succeeded"], ...Object.entries(ended)];

/** outcomeFilter returns the query arguments for a choice. */
export function outcomeFilter(value: string): Pick<Filter, "outcomes" | "failed"> {
  if (value === "failed" || value === "succeeded") return { failed: value === "failed", outcomes: null };
  return { failed: null, outcomes: value === "" ? null : [value as Outcome] };
}
