import { expect, test } from "vitest";
import { sentence, verdict, type OutcomeParts } from "./outcome";

const ended: OutcomeParts = { state: "FINISHED", outcome: "EXITED", exitCode: 0, signal: null, goneReason: null, message: "", usage: { wallMs: 2000, peakMemory: 268435456, outputBytes: 17_000_000 } };

test.each<[Partial<OutcomeParts>, string, string]>([
  [{}, "Succeeded", "It succeeded after 2 s."],
  [{ exitCode: 3 }, "Exit 3", "It ended after 2 s with exit status 3."],
  [{ outcome: "SIGNALED", signal: "SIGSEGV" }, "SIGSEGV", "It was ended after 2 s by SIGSEGV, which nobody here sent."],
  [{ outcome: "TIME_LIMIT" }, "Time limit", "It was stopped after 2 s: time limit."],
  [{ outcome: "MEMORY_LIMIT" }, "Memory limit", "It was stopped after 2 s: the memory was full (256 MiB)."],
  [{ outcome: "OUTPUT_LIMIT" }, "Output limit", "It was stopped after 2 s: it printed more than it may (16.2 MiB)."],
  [{ outcome: "RUNNER_GONE", goneReason: "INACTIVITY", usage: null }, "Runner gone", "It ended, since its runner was unused for too long."],
  [{ outcome: "LOST", usage: null }, "Lost", "Nobody knows how it ended: no evidence survived."],
  [{ outcome: "FAILED", message: "no such program", usage: null }, "Failed", "It failed: no such program"],
  [{ state: "RUNNING", outcome: null, exitCode: null, usage: null }, "Running", "It runs."],
])("%j", (change, word, words) => {
  const of = { ...ended, ...change };
  expect(verdict(of).text).toBe(word);
  expect(sentence(of)).toBe(words);
});
