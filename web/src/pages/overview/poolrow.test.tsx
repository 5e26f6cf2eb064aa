import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Alert, EnvironmentRow } from "../../lib/pools";
import { perMinute, PoolRow } from "./poolrow";

beforeEach(() => void vi.useFakeTimers({ toFake: ["Date"], now: Date.parse("2026-11-21T00:10:00Z") }));

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const pool = { environmentId: "python", revision: 1, size: 2, idle: 2, starting: 0, claimed: 0, stopping: 0, waiting: 0, reason: null, deleted: false, image: null };
const environment: EnvironmentRow = {
  id: "python",
  tenant: "course-1",
  shared: true,
  revision: 1,
  image: "host",
  isolation: "NAMESPACES",
  claimStats: { claimed: 300, warm: 299, durations: { p50Ms: 0.4, p99Ms: 7 } },
  poolHistory: { stepSeconds: 10, idle: [1, 2], claims: [1, 0] },
  pool,
};
const alert: Alert = { environmentId: "python", state: "RAISED", since: "2026-11-21T00:09:30Z", idle: 0, size: 2, threshold: 0.5, reason: "memory exhausted: 512 MiB wanted, 130 MiB free" };

test("a healthy pool shows Ready and its claim statistics", () => {
  const { container } = render(<PoolRow environment={environment} alert={undefined} />);
  screen.getByText("Ready");
  expect(container.querySelector(".claims")!.textContent).toBe("300 claims, 99 % warm400 µs, p99 7 ms");
});

test("an alert shows its age and reason", () => {
  render(<PoolRow environment={{ ...environment, pool: { ...pool, idle: 0 } }} alert={alert} />);
  screen.getByText("Too few idle");
  screen.getByText(/Too few idle for 30 s: memory exhausted/);
});

test("any id is escaped in the link", () => {
  render(<PoolRow environment={{ ...environment, id: "a b/c" }} alert={undefined} />);
  expect(screen.getByRole("link").getAttribute("href")).toBe("/environments/a%20b%2Fc");
});

test("the tenant is shown on request", () => {
  const { container, rerender } = render(<PoolRow environment={environment} alert={undefined} />);
  expect(container.textContent).not.toContain("course-1");
  rerender(<PoolRow environment={environment} alert={undefined} tenant />);
  expect(container.querySelector(".owner")!.textContent).toBe("course-1, shared");
});

test("the last minute of claims ends now", () => {
  expect(perMinute([1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2], 10)).toEqual([6, 12]);
  expect(perMinute([5, 1, 1, 1, 1, 1, 1], 10)).toEqual([5, 6]);
  expect(perMinute([], 10)).toEqual([]);
});
