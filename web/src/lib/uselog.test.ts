import { act, cleanup, renderHook } from "@testing-library/react";
import type { Sink } from "graphql-ws";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ask } from "./ask";
import { link } from "./link";
import type { LinePage } from "./loglines";
import type { Stream } from "./output";
import { useLog } from "./uselog";

vi.mock("./ask", async (actual) => ({ ...(await actual<object>()), ask: vi.fn() }));

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
  vi.mocked(ask).mockResolvedValue({ execution: { lines: page } });
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

test("what has printed has started", async () => {
  expect((await opened(0)).current.started).toBe(false);
  cleanup();
  expect((await opened(1)).current.started).toBe(true);
});

test("that events are refused stays, whatever pages come", async () => {
  const log = await opened(1);
  act(() => sink.next({ data: { executionEvents: { __typename: "ExecutionOutput", cursor: "next" } } }));
  act(() => sink.next({ errors: [{ message: "not yours", extensions: { code: "FORBIDDEN" } }] } as unknown as Parameters<Sink["next"]>[0]));
  const { version } = log.current;
  await act(() => vi.advanceTimersByTimeAsync(1_000));
  expect(log.current.version).toBeGreaterThan(version); // a page came
  expect(log.current.error?.message).toBe("not yours");
});
