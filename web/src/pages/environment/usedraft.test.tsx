import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { blank } from "./draft";
import { unknownMachine } from "./machine";
import { silence, useDraft } from "./usedraft";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const answered = (body: object) => new Response(JSON.stringify(body));

test.each([
  ["r.example/x:1", "r.example/x:1"],
  ["host", ""],
  ["file:x.tar", ""],
])("no answer about the image %s in time names the image: %j", async (image, want) => {
  let answer: (response: Response) => void = () => {};
  vi.stubGlobal("fetch", () => new Promise<Response>((resolve) => (answer = resolve)));
  const { result } = renderHook(() => useDraft({ ...blank, id: "a", image }, 0, unknownMachine));
  let sent: Promise<unknown> = Promise.resolve();
  act(() => void (sent = result.current.put.run()));
  act(() => void vi.advanceTimersByTime(silence - 1));
  expect(result.current.silent).toBe("");
  act(() => void vi.advanceTimersByTime(2));
  expect(result.current.silent).toBe(want);
  await act(async () => {
    answer(answered({ errors: [{ message: "the registry r.example is unreachable", extensions: { code: "CLUSTER_UNAVAILABLE", retryable: true } }] }));
    await sent;
  });
  expect([result.current.silent, result.current.put.error?.message]).toEqual(["", "the registry r.example is unreachable"]);
});

test("a resource above the limit isn't sent", async () => {
  const sent = vi.fn();
  vi.stubGlobal("fetch", sent);
  const machine = { ...unknownMachine, largestRunner: { cpuMHz: 4000, memoryMiB: 100, processes: 1000, workspaceMiB: 1000 } };
  const { result } = renderHook(() => useDraft({ ...blank, id: "a" }, 0, machine));
  expect(result.current.wrong.map(({ field }) => field)).toEqual(["resources.memoryMiB"]);
  await act(async () => void (await result.current.put.run()));
  expect([sent.mock.calls.length, result.current.refused?.field]).toEqual([0, "resources.memoryMiB"]);
});
