import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Attacks, Summary, Verdict } from "./overview";

afterEach(cleanup);

type Component = Parameters<typeof Verdict>[0]["health"]["components"][number];
const part = (name: string, status: Component["status"]): Component => ({ name, status, since: "2026-11-21T00:00:00Z", message: status === "OK" ? "" : `${name} says why` });

test.each([
  ["OK" as const, [part("cluster", "OK"), part("store", "OK")], "Healthy"],
  ["DEGRADED" as const, [part("cluster", "OK"), part("pool big", "DEGRADED")], "Degraded: pool big"],
  ["DOWN" as const, [part("pool big", "DEGRADED"), part("store", "DOWN")], "Down: store, pool big"],
  ["DOWN" as const, [part("pool a", "DEGRADED"), part("pool b", "DEGRADED"), part("store", "DOWN")], "Down: store and 2 more"],
])("%s names the failing components", (status, components, says) => {
  const { container } = render(<Verdict health={{ status, components }} />);
  expect(container.textContent).toBe(says);
});

test.each([
  [170, []],
  [168, ["call keyctl", "a fork\u202e bomb"]],
])("attacks blocked: %i", (held, failed) => {
  const { container } = render(<Attacks attacks={{ at: "2026-11-22T05:00:00Z", version: "1", isolation: "NAMESPACES", tried: 170, held, failed }} />);
  expect(container.textContent).toBe(`${held} of 170 attacks blocked, NAMESPACES, 2026-11-22`);
  const title = container.querySelector("[title]")?.getAttribute("title") ?? "";
  expect(title).not.toContain("\u202e");
  expect(title.split("\n").length).toBe(1 + failed.length);
});

test("capacity is shown only to callers with access to it", () => {
  const activity = { executionsRunning: 3, executionsPending: 0, failuresPerMinute: 0, claimsWaiting: 1, draining: false };
  const health = { status: "OK" as const, components: [part("cluster", "OK")], attacks: null };
  const { container, rerender } = render(<Summary environments={[{ pool: { idle: 2, claimed: 0 } }]} activity={activity} capacity={undefined} health={health} />);
  expect(container.textContent).toBe("HealthHealthyExecutions running3Failures a minute0Claims waiting1Idle runners2Claimed runners0");
  expect([...container.querySelectorAll(".big a")].map((link) => [link.getAttribute("aria-label"), link.getAttribute("href")])).toEqual([
    ["Executions running: 3", "/executions?state=RUNNING"],
    ["Failures a minute: 0", "/executions?outcome=failed"],
    ["Claims waiting: 1", "/access/queue"],
  ]);
  rerender(<Summary environments={[]} activity={undefined} capacity={{ now: undefined }} health={health} />);
  expect(container.textContent).toContain("CPU allocated…");
  rerender(<Summary environments={undefined} activity={undefined} capacity={undefined} health={health} />);
  expect(container.textContent).toBe("HealthHealthyExecutions running…Failures a minute…Claims waiting…Idle runners…Claimed runners…");
});
