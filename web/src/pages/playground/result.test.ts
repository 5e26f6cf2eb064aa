import { expect, test } from "vitest";
import { ServerError } from "../../lib/request";
import { failureOf, stateOf } from "./result";
import type { Phase } from "./run";

const execution = (state: "PENDING" | "RUNNING" | "FINISHED") =>
  ({ state, outcome: state === "FINISHED" ? "CANCELLED" : null, exitCode: null, signal: null, goneReason: null, message: null, hint: null, comparison: null, usage: null }) as const;
const started: Phase = { at: "started", executionId: "x", runnerId: "r" };

test.each<[Phase | undefined, Parameters<typeof stateOf>[1], string, string]>([
  [undefined, execution("PENDING"), "", "Not run yet."],
  [{ at: "preparing" }, execution("PENDING"), "Starting", "The runner is being prepared."],
  [{ at: "waiting", turn: { position: 1, estimatedWaitMs: null } }, execution("PENDING"), "Waiting for a runner", "No runner is idle. You are next."],
  [{ at: "stopped" }, execution("PENDING"), "Stopped", "Stopped before the program started."],
  [{ at: "failed", error: new ServerError("no") }, execution("PENDING"), "Not run", "The program wasn't started."],
  [started, execution("PENDING"), "Starting", "Waiting to start."],
  [started, execution("RUNNING"), "Running", "The program is running."],
  [started, execution("FINISHED"), "Cancelled", "Cancelled."],
])("%#", (phase, of, text, says) => expect(stateOf(phase, of, undefined)).toMatchObject({ text, detail: says }));

test("an incomplete input is reported", () => {
  expect(failureOf(started)).toBeUndefined();
  expect(failureOf({ ...started, unfed: new ServerError("refused") })?.message).toBe("The program didn't get all of its standard input: refused");
});

test("a program from a link says that it hasn't run", () => {
  expect(stateOf(undefined, execution("PENDING"), undefined, true).detail).toBe("Loaded from a link. Not run yet.");
});
