import { expect, test, vi } from "vitest";
import { ServerError } from "../../lib/request";
import { Typist, type Written } from "./stdin";

const limit = 100_000; // ms, which only ends a test that would hang

test("keys are sent in order, waiting ones together", async () => {
  const calls: [string, number | undefined, (written: Written) => void][] = [];
  const typist = new Typist((text, offset) => new Promise((resolve) => calls.push([text, offset, resolve])), () => {});
  for (const key of "abc") typist.type(key);
  expect(calls.map(([text]) => text)).toEqual(["a"]);
  calls[0]![2]({ offset: 1 });
  await vi.waitFor(() => expect(calls).toHaveLength(2), limit);
  expect(calls[1]!.slice(0, 2)).toEqual(["bc", undefined]);
});

test("a call without a response is repeated with the same offset", async () => {
  vi.useFakeTimers();
  const calls: [string, number | undefined][] = [];
  let broken = false;
  const failures: string[] = [];
  const typist = new Typist(
    async (text, offset) => {
      calls.push([text, offset]);
      if (broken) throw new ServerError("gone", "UNREACHABLE", "", true);
      return { offset: (offset ?? 0) + text.length };
    },
    (error) => failures.push(error.code),
  );
  typist.type("a");
  await vi.advanceTimersByTimeAsync(0);
  broken = true;
  typist.type("b");
  await vi.advanceTimersByTimeAsync(0);
  typist.type("c");
  broken = false;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(calls).toEqual([["a", undefined], ["b", undefined], ["bc", 1]]);
  expect(failures).toEqual([]);
  vi.useRealTimers();
});

test("a final error is shown, and typing continues", async () => {
  const failures: string[] = [];
  let refuse = true;
  const sent: string[] = [];
  const typist = new Typist(
    async (text) => {
      if (refuse) throw new ServerError("closed", "CONFLICT");
      sent.push(text);
      return { offset: text.length };
    },
    (error) => failures.push(error.code),
  );
  typist.type("a");
  await vi.waitFor(() => expect(failures).toEqual(["CONFLICT"]), limit);
  refuse = false;
  typist.type("b");
  await vi.waitFor(() => expect(sent).toEqual(["b"]), limit);
});
