import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ServerError } from "../../lib/request";
import { feed, longest, type Write } from "./feed";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A program's input, of which each call fails first as it is listed, having taken so many bytes. */
function input(...failures: [ServerError, number][]) {
  const taken: number[] = [];
  const calls: number[] = [];
  let closed = false;
  const write: Write = async ({ text, offset, close }) => {
    calls.push(offset);
    expect(offset).toBeLessThanOrEqual(taken.length);
    const fresh = [...new TextEncoder().encode(text)].slice(taken.length - offset);
    const [error, some] = failures.shift() ?? [];
    for (const byte of fresh.slice(0, some)) taken.push(byte);
    if (error) throw error;
    closed = close;
    return taken.length;
  };
  return { write, calls, text: () => new TextDecoder().decode(Uint8Array.from(taken)), closed: () => closed };
}
const limit = new ServerError("it doesn't read", "LIMIT_EXCEEDED");
const unreachable = new ServerError("no answer", "UNREACHABLE", "", true);

test("a large input is sent in parts without splitting characters", async () => {
  const stdin = "é\u{1f600}".repeat(longest);
  const { write, calls, text, closed } = input();
  await feed(stdin, write);
  expect(text()).toBe(stdin);
  expect(calls).toEqual([0, 3 * longest]);
  expect(closed()).toBe(true);
});

test("a part is retried after a temporary error, and nothing arrives twice", async () => {
  const stdin = "a".repeat(longest) + "b".repeat(9);
  const { write, calls, text, closed } = input([unreachable, 0], [limit, 5], [unreachable, longest], [unreachable, longest]);
  const fed = feed(stdin, write);
  await vi.advanceTimersByTimeAsync(0);
  expect(calls).toEqual([0]);
  await vi.runAllTimersAsync();
  await fed;
  expect(calls).toEqual([0, 0, 0, 0, 0, longest]);
  expect(text()).toBe(stdin);
  expect(closed()).toBe(true);
});

test.each(["CONFLICT", "EXECUTION_NOT_FOUND", "RUNNER_GONE"])("a program that has ended gets no more input: %s", async (code) => {
  const { write, calls } = input([new ServerError("it has ended", code), 0]);
  await feed("a", write);
  expect(calls).toEqual([0]);
});

test("any other error is thrown", async () => {
  const { write } = input([new ServerError("no", "FORBIDDEN"), 0]);
  await expect(feed("a", write)).rejects.toMatchObject({ code: "FORBIDDEN" });
});

test("an empty input causes no call", async () => {
  const { write, calls } = input();
  await feed("", write);
  expect(calls).toEqual([]);
});
