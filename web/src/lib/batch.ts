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

export type CaseState = "WAITING" | "RUNNING" | "PASSED" | "FAILED" | "SKIPPED" | "COLLECTED";

/** How a batch is, in a word or two, and in a colour. */
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

/** What became of its cases: "8 of 10 passed, 1 failed, 1 skipped". */
export function tally(of: Pick<BatchParts, "state" | "caseCount" | "endedCount" | "failedCount" | "skippedCount">): string {
  const rest = of.caseCount - of.endedCount - of.skippedCount;
  return [
    `${of.endedCount - of.failedCount} of ${plural(of.caseCount, "case")} passed`,
    of.failedCount > 0 && `${of.failedCount} failed`,
    of.skippedCount > 0 && `${of.skippedCount} skipped`,
    of.state === "RUNNING" && rest > 0 && `${rest} to go`,
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

/** How a case is, in a word, and in a colour. */
export function caseVerdict(state: CaseState): { tone: Tone; text: string } {
  return caseWords[state];
}
