import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { useActivity } from "../lib/activity";
import type { Pool } from "../lib/pools";
import { Maintenance } from "./maintenance";
import { PoolReason, PoolState } from "./poolstate";

vi.mock("../lib/activity", () => ({ useActivity: vi.fn() }));
afterEach(cleanup);

const pool: Pool = { environmentId: "a", revision: 1, size: 2, idle: 0, starting: 2, claimed: 0, stopping: 0, waiting: 0, reason: "no room", deleted: false, image: null };
const says = (draining: boolean, of = pool) => {
  vi.mocked(useActivity).mockReturnValue({ data: { executionsRunning: 0, executionsPending: 0, failuresPerMinute: 0, claimsWaiting: 0, draining }, error: undefined, reload: () => {} });
  const { container } = render(
    <>
      <Maintenance />
      <PoolState pool={of} alert={undefined} />
      <PoolReason pool={of} alert={undefined} />
    </>,
  );
  return container.textContent;
};

test("a pool with a reason is not filling, except while the cluster drains", () => {
  expect(says(false)).toBe("Not fillingno room");
  cleanup();
  expect(says(true)).toBe("The cluster is draining. New runners don't start; claims wait.Drained");
  for (const left of [{ claimed: 1 }, { stopping: 1 }]) {
    cleanup();
    expect(says(true, { ...pool, ...left })).toMatch(/Draining$/);
  }
});
