import type { Tone } from "../ui/parts";
import { plural } from "./format";
import { graphql, type ResultOf } from "./graphql";

export const BatchFragment = graphql(`
  fragment BatchParts on Batch {
    id
    tenant
    runnerId
    environmentId
    state
    outcome
    message
    hasBuild
    caseCount
    endedCount
    failedCount
    skippedCount
    queuedAt
    finishedAt
  }
`);
export type BatchParts = ResultOf<typeof BatchFragment>;

/** CaseState is a case's state. COLLECTED means that the server no longer keeps the execution. */
export type CaseState = "WAITING" | "RUNNING" | "PASSED" | "FAILED" | "SKIPPED" | "COLLECTED";

/** batchVerdict returns a batch's state or outcome as a short text and its tone. */
export function batchVerdict(of: Pick<BatchParts, "state" | "outcome" | "failedCount">): { tone: Tone; text: string } {
  if (of.state === "RUNNING") return { tone: "busy", text: "Running" };
  switch (of.outcome) {
    case "COMPLETED":
      return of.failedCount === 0 ? { tone: "good", text: "All passed" } : { tone: "bad", text: `${of.failedCount} failed` };
    case "STOPPED":
      return { tone: "bad", text: "Stopped" };
    case "BUILD_FAILED":
      return { tone: "bad", text: "Build failed" };
    case "CANCELLED":
      return { tone: "quiet", text: "Cancelled" };
    case "RUNNER_GONE":
      return { tone: "bad", text: "Runner gone" };
    default:
      return { tone: "bad", text: "Failed" };
  }
}

/** tally counts a batch's cases: "8 of 10 cases passed, 1 failed, 1 skipped". */
export function tally(of: Pick<BatchParts, "state" | "caseCount" | "endedCount" | "failedCount" | "skippedCount">): string {
  const rest = of.caseCount - of.endedCount - of.skippedCount;
  return [
    `${of.endedCount - of.failedCount} of ${plural(of.caseCount, "case")} passed`,
    of.failedCount > 0 && `${of.failedCount} failed`,
    of.skippedCount > 0 && `${of.skippedCount} skipped`,
    of.state === "RUNNING" && rest > 0 && `${rest} left`,
  ]
    .filter(Boolean)
    .join(", ");
}

const caseWords: Record<CaseState, { tone: Tone; text: string }> = {
  WAITING: { tone: "quiet", text: "Waiting" },
  RUNNING: { tone: "busy", text: "Running" },
  PASSED: { tone: "good", text: "Passed" },
  FAILED: { tone: "bad", text: "Failed" },
  SKIPPED: { tone: "quiet", text: "Skipped" },
  COLLECTED: { tone: "quiet", text: "Not kept" },
};

/** caseVerdict returns a case's state as one or two words and its tone. */
export function caseVerdict(state: CaseState): { tone: Tone; text: string } {
  return caseWords[state];
}
