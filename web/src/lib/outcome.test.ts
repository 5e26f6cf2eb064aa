import { expect, test } from "vitest";
import { sentence, verdict, type OutcomeParts } from "./outcome";

const ended: OutcomeParts = { state: "FINISHED", outcome: "EXITED", exitCode: 0, signal: null, goneReason: null, message: "", hint: null, comparison: null, usage: { wallMs: 2000, outputBytes: 0 } };

test.each<[Partial<OutcomeParts>, string, string]>([
  [{}, "Succeeded", "Succeeded after 2 s."],
  [{ exitCode: 3 }, "Exit 3", "Ended after 2 s with exit status 3."],
  [{ outcome: "SIGNALED", signal: "SIGSEGV" }, "SIGSEGV", "Ended after 2 s by SIGSEGV, which wasn't sent through Rockpool."],
  [{ outcome: "SIGNALED", signal: "SIGFPE", message: "ended by SIGFPE: it divided an integer by zero" }, "SIGFPE", "Ended after 2 s by SIGFPE: it divided an integer by zero."],
  [{ message: "exited with code 0; the kernel killed 1 of its processes" }, "Succeeded", "Succeeded after 2 s; the kernel killed 1 of its processes."],
  [{ exitCode: 1, message: "exited with code 1", hint: "the environment lacks the module x" }, "Exit 1", "Ended after 2 s with exit status 1. Note: the environment lacks the module x."],
  [{ outcome: "TIME_LIMIT", message: "it ran into its time limit of 2 s" }, "Time limit", "Stopped after 2 s: it ran into its time limit of 2 s."],
  [{ outcome: "TIME_LIMIT", message: "it ran into its time limit of 2 s", hint: "it printed nothing" }, "Time limit", "Stopped after 2 s: it ran into its time limit of 2 s. Note: it printed nothing."],
  [{ outcome: "MEMORY_LIMIT", message: "it ran into its runner's memory limit of 256 MiB" }, "Memory limit", "Stopped after 2 s: it ran into its runner's memory limit of 256 MiB."],
  [{ outcome: "OUTPUT_LIMIT", message: "it ran into its output limit of 16 MiB", usage: null }, "Output limit", "Stopped: it ran into its output limit of 16 MiB."],
  [{ outcome: "RUNNER_GONE", goneReason: "INACTIVITY", usage: null }, "Runner gone", "Ended: the runner was unused for its inactivity timeout."],
  [{ outcome: "LOST", usage: null }, "Lost", "The outcome is unknown because the record was lost."],
  [{ outcome: "FAILED", message: "no such program", usage: null }, "Failed", "Failed: no such program"],
  [{ state: "RUNNING", outcome: null, exitCode: null, usage: null }, "Running", "The program is running."],
])("%j", (change, word, words) => {
  const of = { ...ended, ...change };
  expect(verdict(of).text).toBe(word);
  expect(sentence(of)).toBe(words);
});

test("a wrong output is no success", () => {
  const wrong = { ...ended, exitCode: 0, comparison: { message: 'line 1: "2" instead of "3"' } };
  expect(verdict(wrong)).toEqual({ tone: "bad", text: "Wrong output" });
  expect(sentence(wrong)).toContain('line 1: "2" instead of "3"');
  expect(verdict({ ...wrong, comparison: { message: null } }).tone).toBe("good");
});
