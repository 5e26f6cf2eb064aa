import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { request, ServerError, textOf } from "../../lib/request";
import { useActivity } from "../../lib/activity";
import { link } from "../../lib/link";
import { Alerts, type Past } from "./alerts";
import { Progress } from "./drain";
import Operations from "./operations";

vi.mock("../../lib/activity", async (actual) => {
  const module = await actual<{ useActivity: () => unknown }>();
  return { ...module, useActivity: vi.fn(module.useActivity) };
});
vi.mock("../../lib/request", async (actual) => ({ ...(await actual<object>()), request: vi.fn() }));

afterEach(cleanup);

const past = (environmentId: string, state: Past["state"], since: string): Past => ({ environmentId, state, since, idle: 0, size: 2, threshold: 0.5, reason: `${environmentId} says why` });

test("a drain lists what it waits for, without zeros", () => {
  const { container, rerender } = render(<Progress draining={{ since: "2026-11-21T00:00:00Z", claimed: 1, leaving: 0, executions: 2 }} />);
  expect([...container.querySelectorAll("dl > div")].map((fact) => fact.textContent)).toEqual(["Claimed1 runner", "Executions2 executions"]);
  expect(screen.getByText("1 runner").getAttribute("href")).toBe("/runners?state=CLAIMED");
  expect(container.querySelector(".tag")!.textContent).toBe("Draining");
  rerender(<Progress draining={{ since: "2026-11-21T00:00:00Z", claimed: 0, leaving: 0, executions: 0 }} />);
  expect(container.querySelector(".tag")!.textContent).toBe("Drained");
  screen.getByText(/No runner is left/);
});

test("an active alert is listed once, before the history", () => {
  const standing = past("a", "RAISED", "2026-11-21T00:00:03Z");
  const history = [standing, past("b", "RESOLVED", "2026-11-21T00:00:02Z"), past("b", "RAISED", "2026-11-21T00:00:01Z")];
  const { container } = render(<Alerts standing={new Map([["a", standing]])} history={history} />);
  expect([...container.querySelectorAll("li")].map((row) => `${row.querySelector("a")!.textContent} ${row.querySelector(".tag")!.textContent}`)).toEqual(["a Active", "b Resolved", "b Raised"]);
});

test("only the latest of many alerts are shown at first", () => {
  const history = Array.from({ length: 30 }, (_, n) => past(`e${n}`, "RESOLVED", new Date(1e12 - n * 1000).toISOString()));
  const { container } = render(<Alerts standing={new Map()} history={history} />);
  expect(container.querySelectorAll("li").length).toBe(10);
  screen.getByText("Show all 30");
});

test("active alerts are sorted newest first", () => {
  const [a, b, c] = [past("a", "RAISED", "2026-11-21T00:00:01Z"), past("b", "RAISED", "2026-11-21T00:00:03Z"), past("c", "RAISED", "2026-11-21T00:00:02.5Z")];
  const { container } = render(<Alerts standing={new Map([["a", a], ["b", b], ["c", c]])} history={[]} />);
  expect([...container.querySelectorAll("li > a")].map((link) => link.textContent)).toEqual(["b", "c", "a"]);
});

/** Answers each query of the page by its name. */
function answers(by: Record<string, unknown>) {
  vi.mocked(request).mockImplementation((document) => {
    const [, name = ""] = /query (\w+)/.exec(textOf(document)) ?? [];
    const answer = by[name];
    return answer instanceof Error ? Promise.reject(answer) : answer ? Promise.resolve(answer) : new Promise(() => {});
  });
  vi.spyOn(link.client, "subscribe").mockReturnValue(() => {});
}

const capacity = { cpuMHz: 1, cpuMHzPromisable: 1, cpuMHzUsed: 0, memoryMiB: 1, memoryMiBPromisable: 1, memoryMiBUsed: 0 };

test("the page shows its other parts if the alerts' history fails", async () => {
  answers({ OperationsNow: { cluster: { kind: "local", capacity, draining: null } }, Environments: { environments: [] }, AlertHistory: new ServerError("no history here") });
  render(<Operations />);
  const failed = await screen.findByText("no history here");
  expect(failed.closest(".card")!.querySelector("h2")!.textContent).toBe("Alerts");
  screen.getByText("Pools");
  expect(screen.queryByText("No alerts since the server started")).toBeNull(); // that isn't known
});

test.each([true, false])("the activity is reloaded if it doesn't know of a drain, known: %s", async (known) => {
  const reload = vi.fn();
  vi.mocked(useActivity).mockReturnValue({ data: { executionsRunning: 0, executionsPending: 0, failuresPerMinute: 0, claimsWaiting: 0, draining: known }, error: undefined, reload });
  answers({ OperationsNow: { cluster: { kind: "local", capacity, draining: { since: "2026-11-21T00:00:00Z", claimed: 0, leaving: 0, executions: 0 } } } });
  render(<Operations />);
  await screen.findByText("Drained");
  expect(reload.mock.calls.length > 0).toBe(!known); // it is asked for again with each look at the cluster
});
