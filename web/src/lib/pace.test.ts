import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { paced } from "./pace";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Work that takes so many ms, and counts itself. */
function work(ms: number) {
  return vi.fn(() => new Promise<void>((resolve) => setTimeout(resolve, ms)));
}

test("work runs immediately and then periodically", async () => {
  const done = work(0);
  const { stop } = paced(done, 2_000);
  expect(done).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(4_100);
  expect(done).toHaveBeenCalledTimes(3);
  stop();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(done).toHaveBeenCalledTimes(3);
});

test("a burst of requests causes one early call", async () => {
  const done = work(0);
  const { soon, stop } = paced(done, 60_000);
  for (let i = 0; i < 100; i++) {
    soon();
    await vi.advanceTimersByTimeAsync(10);
  }
  expect(done.mock.calls.length).toBeGreaterThanOrEqual(4);
  expect(done.mock.calls.length).toBeLessThanOrEqual(6); // each 250 ms
  await vi.advanceTimersByTimeAsync(10_000);
  const calls = done.mock.calls.length;
  soon();
  await vi.advanceTimersByTimeAsync(1);
  expect(done).toHaveBeenCalledTimes(calls + 1);
  stop();
});

test("slow work takes at most a fifth of the time, and a request meanwhile isn't lost", async () => {
  const done = work(500);
  const { soon, stop } = paced(done, 60_000);
  await vi.advanceTimersByTimeAsync(100);
  soon();
  await vi.advanceTimersByTimeAsync(2_300);
  expect(done).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(200);
  expect(done).toHaveBeenCalledTimes(2);
  stop();
});
