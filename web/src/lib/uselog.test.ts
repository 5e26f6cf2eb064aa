import { act, cleanup, renderHook } from "@testing-library/react";
import type { Sink } from "graphql-ws";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { request, ServerError } from "./request";
import { link } from "./link";
import type { LinePage, Stream } from "./loglines";
import { useLog, useSearchedLog } from "./uselog";

vi.mock("./request", async (actual) => ({ ...(await actual<object>()), request: vi.fn() }));

let sink: Sink;
let variables: Record<string, unknown>;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(link.client, "subscribe").mockImplementation((payload, to) => {
    variables = payload.variables ?? {};
    sink = to as unknown as Sink;
    return () => {};
  });
});
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

/** Shows a log of so many lines. */
async function opened(total: number, stream?: Stream) {
  const page: LinePage = { lines: [], before: total, total, counted: true, more: false, next: null, cursor: "here" };
  vi.mocked(request).mockResolvedValue({ execution: { lines: page } });
  const { result } = renderHook(() => useLog("x", stream));
  await act(() => vi.advanceTimersByTimeAsync(0));
  return result;
}

test.each([
  [undefined, 0, null],
  [undefined, 5, "here"],
  ["STDERR" as const, 0, "here"],
  ["STDERR" as const, 5, "here"],
])("stream %s with %i lines: events are wanted after %s", async (stream, total, after) => {
  await opened(total, stream);
  expect(variables).toEqual({ executionId: "x", after });
});

test("output implies that the execution has started", async () => {
  expect((await opened(0)).current.started).toBe(false);
  cleanup();
  expect((await opened(1)).current.started).toBe(true);
});

test("a refused subscription stays reported after pages load", async () => {
  const log = await opened(1);
  act(() => sink.next({ data: { executionEvents: { __typename: "ExecutionOutput", cursor: "next" } } }));
  act(() => sink.next({ errors: [{ message: "not yours", extensions: { code: "FORBIDDEN" } }] } as unknown as Parameters<Sink["next"]>[0]));
  const { version } = log.current;
  await act(() => vi.advanceTimersByTimeAsync(1_000));
  expect(log.current.version).toBeGreaterThan(version); // a page came
  expect(log.current.error?.message).toBe("not yours");
});

test("the first output and the end are requested immediately, more output at most ten times a second", async () => {
  const log = await opened(0);
  const asked = () => vi.mocked(request).mock.calls.length;
  const says = (event: { __typename: string; [part: string]: unknown }) => act(() => sink.next({ data: { executionEvents: { cursor: "next", ...event } } }));
  const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));
  says({ __typename: "ExecutionStarted" });
  expect(log.current.started).toBe(true);
  const before = asked();
  says({ __typename: "ExecutionOutput" });
  await pass(0);
  expect(asked() - before).toBe(1);
  for (let i = 0; i < 1_000; i++) {
    says({ __typename: "ExecutionOutput" });
    await pass(1);
  }
  expect(asked() - before).toBe(11);
  says({ __typename: "ExecutionOutput" });
  says({ __typename: "ExecutionFinished", execution: { state: "FINISHED" } });
  await pass(0);
  expect([asked() - before, log.current.end?.state]).toEqual([12, "FINISHED"]);
  await pass(1_000);
  expect(asked() - before).toBe(12);
});

test("the end is known even if its page fails", async () => {
  const log = await opened(1);
  vi.mocked(request).mockRejectedValue(new ServerError("not yours"));
  act(() => sink.next({ data: { executionEvents: { __typename: "ExecutionFinished", cursor: "next", execution: { state: "FINISHED" } } } }));
  await act(() => vi.advanceTimersByTimeAsync(0));
  expect([log.current.error?.message, log.current.end?.state]).toEqual(["not yours", "FINISHED"]);
});

test("without an execution nothing is requested, and the log is ready and empty", async () => {
  vi.mocked(request).mockClear();
  const { result } = renderHook(() => useSearchedLog(undefined));
  act(() => result.current.onWanted("x"));
  await act(() => vi.advanceTimersByTimeAsync(1_000));
  expect([vi.mocked(request).mock.calls.length, result.current.log.ready, result.current.found.done, await result.current.log.read()]).toEqual([0, true, true, ""]);
});
