import { act, cleanup, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ServerError } from "../../lib/request";
import { begin } from "./presets";
import { server } from "./server";
import { useRun } from "./userun";

const program = begin({ id: "python", image: "host" });
let cancelled: string[];
/** Completes the cancel calls in their order; undefined completes them immediately. */
let answers: ((error?: ServerError) => void)[] | undefined;

beforeEach(() => {
  sessionStorage.clear();
  cancelled = [];
  answers = undefined;
  let runs = 0;
  vi.spyOn(server, "claim").mockImplementation(async () => ({ runnerId: "r", ticket: undefined }));
  vi.spyOn(server, "write").mockResolvedValue();
  vi.spyOn(server, "start").mockImplementation(async () => `x${++runs}`);
  vi.spyOn(server, "feed").mockResolvedValue();
  vi.spyOn(server, "ended").mockResolvedValue();
  vi.spyOn(server, "release").mockResolvedValue();
  vi.spyOn(server, "cancel").mockImplementation((id) => {
    cancelled.push(id);
    return new Promise((resolve, reject) => (answers ? answers.push((error) => (error ? reject(error) : resolve())) : resolve()));
  });
});
afterEach(cleanup);

test("a run can be stopped while the previous one stops, with its own error", async () => {
  answers = [];
  const { result } = renderHook(() => useRun());
  await act(async () => result.current.run(program));
  await act(async () => void result.current.stop());
  expect(result.current.stopping).toBe(true);
  await act(async () => result.current.run(program));
  expect(result.current.stopping).toBe(false);
  await act(async () => void result.current.stop());
  expect(cancelled).toEqual(["x1", "x1", "x2"]); // another run cancels the one before, too
  await act(async () => answers![0]!(new ServerError("the first one's")));
  expect(result.current).toMatchObject({ stopping: true, stopError: undefined });
  await act(async () => answers![2]!(new ServerError("the second one's")));
  expect(result.current).toMatchObject({ stopping: false, stopError: { message: "the second one's" } });
});

test("a new run cancels the previous one, also after navigation within the page", async () => {
  const first = renderHook(() => useRun());
  await act(async () => first.result.current.run(program));
  first.unmount();
  const { result } = renderHook(() => useRun());
  expect(result.current).toMatchObject({ underWay: true, phase: { executionId: "x1" } });
  await act(async () => result.current.run(program));
  expect(cancelled).toEqual(["x1"]);
});

test("a run of another page is shown, and only Stop cancels it", async () => {
  sessionStorage.setItem("rockpool.playground.run", JSON.stringify(["theirs", "r", "another page"])); // as in a copy of a tab
  renderHook(() => useRun()).unmount();
  const { result } = renderHook(() => useRun());
  expect(result.current).toMatchObject({ underWay: true, phase: { executionId: "theirs" } });
  await act(async () => result.current.run(program));
  await act(async () => result.current.run(program));
  expect(cancelled).toEqual(["x1"]);
  cleanup();
  sessionStorage.setItem("rockpool.playground.run", JSON.stringify(["theirs", "r", "another page"]));
  const { result: again } = renderHook(() => useRun());
  await act(async () => void again.current.stop());
  expect(cancelled).toEqual(["x1", "theirs"]);
});

test("with a program from a link no earlier run is shown", async () => {
  const first = renderHook(() => useRun());
  await act(async () => first.result.current.run(program));
  first.unmount();
  const { result, unmount } = renderHook(() => useRun(false));
  expect(result.current).toMatchObject({ underWay: false, phase: undefined });
  unmount();
  expect(renderHook(() => useRun()).result.current.phase).toBeUndefined();
});
