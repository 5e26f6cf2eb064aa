import type { Tone } from "../ui/parts";
import { duration } from "./format";
import { graphql, type ResultOf } from "./graphql";

export const OutcomeFragment = graphql(`
  fragment OutcomeParts on Execution {
    state
    outcome
    exitCode
    signal
    goneReason
    message
    usage {
      wallMs
      outputBytes
    }
  }
`);
export type OutcomeParts = ResultOf<typeof OutcomeFragment>;

const gone: Record<NonNullable<OutcomeParts["goneReason"]>, string> = {
  RELEASED: "its runner was released",
  INACTIVITY: "its runner was unused for too long",
  REPLACED: "its environment changed",
  SHRUNK: "its pool was made smaller",
  ENVIRONMENT_DELETED: "its environment was deleted",
  START_FAILED: "its runner could not be started",
  AGENT_DIED: "the agent in its runner died",
  OUT_OF_MEMORY: "its runner ran out of memory",
  EVICTED: "the cluster wanted the room",
  DRAINED: "its machine was drained",
  RESCHEDULED: "the cluster started its runner again elsewhere",
  STOPPED_OUTSIDE: "somebody stopped its runner without asking Rockpool",
  UNKNOWN: "its runner went, nobody knows why",
};

/** How an execution is, in a word or two, and in a colour. */
export function verdict(of: OutcomeParts): { tone: Tone; text: string } {
  if (of.state === "PENDING") return { tone: "busy", text: "Waiting" };
  if (of.state === "RUNNING") return { tone: "busy", text: "Running" };
  switch (of.outcome) {
    case "EXITED":
      return of.exitCode === 0 ? { tone: "good", text: "Succeeded" } : { tone: "bad", text: `Exit ${of.exitCode}` };
    case "SIGNALED":
      return { tone: "bad", text: of.signal ?? "Signal" };
    case "TIME_LIMIT":
      return { tone: "warn", text: "Time limit" };
    case "CPU_LIMIT":
      return { tone: "warn", text: "CPU limit" };
    case "MEMORY_LIMIT":
      return { tone: "warn", text: "Memory limit" };
    case "PROCESS_LIMIT":
      return { tone: "warn", text: "Process limit" };
    case "OUTPUT_LIMIT":
      return { tone: "warn", text: "Output limit" };
    case "CANCELLED":
      return { tone: "quiet", text: "Cancelled" };
    case "RUNNER_GONE":
      return { tone: "bad", text: "Runner gone" };
    case "LOST":
      return { tone: "bad", text: "Lost" };
    default:
      return { tone: "bad", text: "Failed" };
  }
}

/** The same in a sentence, with its cause: "stopped after 2 s: it ran into its time limit of 2 s". */
export function sentence(of: OutcomeParts): string {
  if (of.state === "PENDING") return "It waits to be started.";
  if (of.state === "RUNNING") return "It runs.";
  const after = of.usage ? ` after ${duration(of.usage.wallMs)}` : "";
  switch (of.outcome) {
    case "EXITED":
      return of.exitCode === 0 ? `It succeeded${after}.` : `It ended${after} with exit status ${of.exitCode}.`;
    case "SIGNALED":
      return `It was ended${after} by ${of.signal ?? "a signal"}, not sent through Rockpool.`;
    case "TIME_LIMIT":
    case "CPU_LIMIT":
    case "MEMORY_LIMIT":
    case "PROCESS_LIMIT":
    case "OUTPUT_LIMIT":
      return `It was stopped${after}: ${of.message}.`;
    case "CANCELLED":
      return `It was cancelled${after}.`;
    case "RUNNER_GONE":
      return `It ended${after}, since ${of.goneReason ? gone[of.goneReason] : "its runner went"}.`;
    case "LOST":
      return "How it ended is unknown: the record is lost.";
    default:
      return `It failed${of.message ? `: ${of.message}` : "."}`;
  }
}
