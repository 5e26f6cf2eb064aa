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
    hint
    comparison {
      message
    }
    usage {
      wallMs
      outputBytes
    }
  }
`);
export type OutcomeParts = ResultOf<typeof OutcomeFragment>;

const gone: Record<NonNullable<OutcomeParts["goneReason"]>, string> = {
  RELEASED: "the runner was released",
  INACTIVITY: "the runner was unused for its inactivity timeout",
  REPLACED: "the environment changed",
  SHRUNK: "the pool was made smaller",
  ENVIRONMENT_DELETED: "the environment was deleted",
  START_FAILED: "the runner couldn't be started",
  AGENT_DIED: "the agent in the runner died",
  OUT_OF_MEMORY: "the runner ran out of memory",
  EVICTED: "the cluster evicted the runner to free resources",
  DRAINED: "the runner's machine was drained",
  RESCHEDULED: "the cluster restarted the runner elsewhere",
  STOPPED_OUTSIDE: "the runner was stopped outside of Rockpool",
  UNKNOWN: "the runner ended for an unknown reason",
};

/** verdict returns an execution's state or outcome as a short text and its tone. */
export function verdict(of: OutcomeParts): { tone: Tone; text: string } {
  if (of.state === "PENDING") return { tone: "busy", text: "Waiting" };
  if (of.state === "RUNNING") return { tone: "busy", text: "Running" };
  switch (of.outcome) {
    case "EXITED":
      if (of.comparison?.message) return { tone: "bad", text: "Wrong output" };
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

/** sentence describes the state or outcome with its cause, as a sentence with a full stop. */
export function sentence(of: OutcomeParts): string {
  if (of.state === "PENDING") return "Waiting to start.";
  if (of.state === "RUNNING") return "The program is running.";
  return ended(of) + (of.hint ? ` Note: ${of.hint}.` : "");
}

/** ended describes an outcome. */
function ended(of: OutcomeParts): string {
  const after = of.usage ? ` after ${duration(of.usage.wallMs)}` : "";
  switch (of.outcome) {
    case "EXITED":
      if (of.comparison?.message) return `Wrong output${after}: ${of.comparison.message}.`;
      return (of.exitCode === 0 ? `Succeeded${after}` : `Ended${after} with exit status ${of.exitCode}`) + (/; .*/.exec(of.message ?? "")?.[0] ?? "") + ".";
    case "SIGNALED":
      return `Ended${after} by ${of.signal ?? "a signal"}${/: .*/.exec(of.message ?? "")?.[0] ?? ", which wasn't sent through Rockpool"}.`;
    case "TIME_LIMIT":
    case "CPU_LIMIT":
    case "MEMORY_LIMIT":
    case "PROCESS_LIMIT":
    case "OUTPUT_LIMIT":
      return `Stopped${after}: ${of.message}.`;
    case "CANCELLED":
      return `Cancelled${after}.`;
    case "RUNNER_GONE":
      return `Ended${after}: ${of.goneReason ? gone[of.goneReason] : gone.UNKNOWN}.`;
    case "LOST":
      return "The outcome is unknown because the record was lost.";
    default:
      return `Failed${of.message ? `: ${of.message}` : "."}`;
  }
}
