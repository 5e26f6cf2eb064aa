import { cleanup, renderHook } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { graphql } from "./graphql";
import { useQuery } from "./hooks";

const VersionQuery = graphql(`
  query HookVersion {
    version
  }
`);

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

test("whileSeen pauses on a hidden page and queries immediately when it is visible again", async () => {
  vi.useFakeTimers();
  let asked = 0;
  vi.stubGlobal("fetch", async () => {
    asked++;
    return Response.json({ data: { version: "1" } });
  });
  const state = vi.spyOn(document, "visibilityState", "get").mockReturnValue("visible");
  const { unmount } = renderHook(() => useQuery(VersionQuery, {}, { every: 1_000, whileSeen: true }));
  await vi.advanceTimersByTimeAsync(2_500);
  expect(asked).toBe(3);
  state.mockReturnValue("hidden");
  await vi.advanceTimersByTimeAsync(600_000);
  expect(asked).toBe(4); // the one that was due
  state.mockReturnValue("visible");
  document.dispatchEvent(new Event("visibilitychange"));
  await vi.advanceTimersByTimeAsync(1_500);
  expect(asked).toBe(6);
  unmount();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(asked).toBe(6);
});
