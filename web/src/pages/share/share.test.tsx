import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { ServerError } from "../../lib/request";
import { Rows } from "../../lib/loglines";
import { SharedPage, type SharedPageProps } from "./share";

afterEach(cleanup);

const running = { commandLine: "echo '<img src=x>'", state: "RUNNING", outcome: null, exitCode: null, signal: null, goneReason: null, message: null, usage: null, timestamps: { startedAt: "2026-11-21T00:00:00Z" } } as const;
const log = { stream: undefined, rows: new Rows(), version: 0, ready: true, started: true, end: undefined, error: undefined, show: () => {}, find: (number: number) => Promise.resolve(number - 1), read: () => Promise.resolve("") };
const searched = { log, wanted: "", found: { numbers: [], done: true, many: false, error: undefined }, onWanted: () => {}, onStream: () => {} };
const expired = new ServerError("the grant has expired: ask for a new one with createGrant", "UNAUTHENTICATED");

const shown = (props: Partial<SharedPageProps>) =>
  render(<SharedPage usable execution={running as never} until="2026-11-22T00:00:00Z" searched={searched} error={undefined} retry={() => {}} tools={<i>download</i>} {...props} />).container;

test("the shared page shows the execution and has no links", () => {
  const container = shown({});
  expect(container.textContent).toContain("Running");
  expect(container.textContent).toContain("'<img src=x>'");
  expect(container.textContent).toContain("download");
  expect(container.querySelectorAll("a, main img")).toHaveLength(0);
});

test.each([
  ["expired", expired, "This link is no longer valid"],
  ["revoked", new ServerError("the token that made the grant has ended, and the grant with it", "UNAUTHENTICATED"), "This link is no longer valid"],
  ["of another execution", new ServerError("no execution", "EXECUTION_NOT_FOUND"), "The execution of this link is no longer kept"],
  ["without the right", new ServerError("needs WATCH", "FORBIDDEN"), "This link doesn't allow watching"],
])("a link that is %s says so", (_, error, says) => {
  const container = shown({ execution: undefined, error });
  expect(container.textContent).toContain(says);
  expect(container.textContent).toContain(error.message);
  expect(screen.queryByRole("button")).toBeNull();
});

test("a link that ends while watched keeps the shown output", () => {
  const container = shown({ error: expired });
  expect(screen.getByRole("alert").textContent).toContain("This link is no longer valid");
  expect(container.querySelector("[role=log]")).toBeTruthy();
  expect(container.textContent).not.toContain("download");
  expect(container.textContent).toContain("No output while the link was valid");
});

test("a link without a grant is reported, and nothing is requested", () => {
  expect(shown({ usable: false, execution: undefined }).textContent).toContain("This link is incomplete");
});

test("an unreachable server offers a retry", () => {
  shown({ execution: undefined, error: new ServerError("The server doesn't answer.", "UNREACHABLE", "", true) });
  expect(screen.getByRole("button", { name: "Try again" })).toBeTruthy();
});
