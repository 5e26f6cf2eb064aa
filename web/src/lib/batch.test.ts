import { expect, test } from "vitest";
import { batchVerdict, caseVerdict, tally } from "./batch";

const batch = { state: "FINISHED", outcome: "COMPLETED", caseCount: 10, endedCount: 10, failedCount: 0, skippedCount: 0 } as const;

test("a batch says how it ended", () => {
  expect(batchVerdict(batch)).toEqual({ tone: "good", text: "All passed" });
  expect(batchVerdict({ ...batch, failedCount: 2 })).toEqual({ tone: "bad", text: "2 failed" });
  expect(batchVerdict({ ...batch, state: "RUNNING", outcome: null }).text).toBe("Running");
  expect(batchVerdict({ ...batch, outcome: "BUILD_FAILED" })).toEqual({ tone: "bad", text: "Build failed" });
  expect(batchVerdict({ ...batch, outcome: "CANCELLED" }).tone).toBe("quiet");
});

test("its cases are counted", () => {
  expect(tally(batch)).toBe("10 of 10 cases passed");
  expect(tally({ ...batch, endedCount: 4, failedCount: 1, skippedCount: 6 })).toBe("3 of 10 cases passed, 1 failed, 6 skipped");
  expect(tally({ ...batch, state: "RUNNING", caseCount: 1, endedCount: 0 })).toBe("0 of 1 case passed, 1 left");
});

test("a case that never ran has not failed", () => {
  expect(caseVerdict("SKIPPED").tone).toBe("quiet");
  expect(caseVerdict("FAILED").tone).toBe("bad");
});
