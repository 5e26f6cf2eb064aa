import { act, cleanup, renderHook } from "@testing-library/react";
import type { Sink } from "graphql-ws";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { link } from "./link";
import { useOutput } from "./useoutput";

let sink: Sink;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(link.client, "subscribe").mockImplementation((_, to) => {
    sink = to as unknown as Sink; // the other end of the connection is the test
    return () => {};
  });
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const says = (event: { __typename: string; [part: string]: unknown }) => act(() => sink.next({ data: { executionEvents: { cursor: "", ...event } } }));

test("a flood is shown a dozen times a second, in however many pieces it comes, and its end at once", () => {
  let renders = 0;
  const { result } = renderHook(() => {
    renders++;
    return useOutput("x");
  });
  says({ __typename: "ExecutionStarted", at: "" });
  expect(result.current.started).toBe(true);
  const before = renders;
  for (let i = 1; i <= 1_000; i++) {
    says({ __typename: "ExecutionOutput", stream: "STDOUT", text: `${i}\n` });
    act(() => vi.advanceTimersByTime(1));
    expect(i - result.current.output.lines.length, `not shown yet when ${i} came`).toBeLessThan(80);
  }
  expect(renders - before).toBe(12);
  says({ __typename: "ExecutionFinished", execution: { state: "FINISHED" } });
  expect(result.current.output.lines).toHaveLength(1_000);
  expect([renders - before, result.current.end === undefined]).toEqual([13, false]);
  act(() => vi.advanceTimersByTime(1_000));
  expect(renders - before).toBe(13);
});
