import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { CallerProvider } from "../../lib/caller";
import Audit, { auditColumns } from "./audit";
import { entriesOf, type Entry } from "./auditlog";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  window.history.replaceState(null, "", "/");
});

const entry = (change: Partial<Entry>): Entry => ({
  id: "1",
  at: "2026-11-21T11:59:30Z",
  tenant: "a",
  actorKind: "TOKEN",
  actorId: "t1",
  actorName: "course",
  role: "CLIENT",
  action: "claimRunner",
  objectKind: "RUNNER",
  objectId: "019b2222-0000-7000-8000-00000000abcd",
  address: "127.0.0.1",
  outcome: "OK",
  ...change,
});

function row(change: Partial<Entry>) {
  const only = { actor: vi.fn(), action: vi.fn(), object: vi.fn() };
  const { container } = render(<>{auditColumns(only).map(({ name, cell }) => <p key={name}>{cell(entry(change))}</p>)}</>);
  return { only, cells: [...container.querySelectorAll("p")].map((cell) => cell.textContent) };
}

test("an entry shows caller, action and object, and a click filters by them", () => {
  const { only, cells } = row({});
  expect(cells.slice(1)).toEqual(["course", "claimRunner", "runner …0000abcd", "OK", "127.0.0.1"]);
  for (const name of [/^course/, /^claimRunner/, /^runner/]) fireEvent.click(screen.getByRole("button", { name }));
  expect([only.actor, only.action, only.object].map((called) => called.mock.calls)).toEqual([[["t1"]], [["claimRunner"]], [["019b2222-0000-7000-8000-00000000abcd"]]]);
});

test("an unknown caller is found by its kind, and a name is text", () => {
  const { only, cells } = row({ actorKind: "UNKNOWN", actorId: "", actorName: "", action: "authenticate", objectKind: "", objectId: "", address: null, outcome: "UNAUTHENTICATED" });
  expect(cells.slice(1)).toEqual(["unknown", "authenticate", "–", "UNAUTHENTICATED", "–"]);
  fireEvent.click(screen.getByRole("button", { name: "unknown" }));
  expect(only.actor).toHaveBeenCalledWith("UNKNOWN");
  cleanup();
  expect(row({ actorName: "<b>x</b>\u202e" }).cells[1]).toBe("<b>x</b>U+202E");
});

/** Shows the page to a caller of a tenant, and returns the variables of its queries. */
function show(address: string, tenant: string | null, answer: object) {
  window.history.replaceState(null, "", address);
  const asked: Record<string, unknown>[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query, variables } = JSON.parse(init.body as string) as { query: string; variables: Record<string, unknown> };
    if (query.includes("me {")) return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant, role: "ADMIN" }, tenants: [{ id: "a" }] } });
    asked.push(variables);
    return Response.json(answer);
  });
  render(
    <CallerProvider>
      <Audit />
    </CallerProvider>,
  );
  return asked;
}
const log = { auditLog: { nodes: [entry({})], pageInfo: { hasNextPage: false, endCursor: "1" } } };

test("an error with a page is shown as a note with its entries", async () => {
  show("/access/audit", null, { data: log, errors: [{ message: "3 entries are missing here", extensions: { code: "CLUSTER_UNAVAILABLE" } }] });
  await waitFor(() => screen.getByText("1 entry"));
  expect(screen.getByText("3 entries are missing here").closest("[role=status]")).toBeTruthy();
  expect(screen.queryByRole("alert")).toBeNull();
});

test("an error without a page is a failure", async () => {
  show("/access/audit", null, { data: null, errors: [{ message: "it is down", extensions: { code: "CLUSTER_UNAVAILABLE" } }] });
  expect((await waitFor(() => screen.getByRole("alert"))).textContent).toContain("it is down");
});

test.each(["1e10", "48", "-1", "x"])("the invalid age %s means any time", async (age) => {
  const asked = show(`/access/audit?age=${age}`, null, { data: log });
  await waitFor(() => screen.getByText("1 entry"));
  expect(asked.at(-1)).toMatchObject({ from: null });
  expect((screen.getByLabelText("Time") as HTMLSelectElement).value).toBe("");
});

test("a valid age filters the log", async () => {
  const asked = show("/access/audit?age=24", null, { data: log });
  await waitFor(() => screen.getByText("1 entry"));
  expect(Date.now() - Date.parse(asked.at(-1)!.from as string)).toBeGreaterThanOrEqual(24 * 3_600_000);
});

test.each([["?outcome=failed", true], ["?outcome=ok", false], ["?outcome=x", null], ["", null]])("an outcome in the address filters the log: %s", async (address, failed) => {
  const asked = show(`/access/audit${address}`, null, { data: log });
  await waitFor(() => screen.getByText("1 entry"));
  expect(asked.at(-1)).toMatchObject({ failed });
});

test("choosing an outcome filters the log", async () => {
  const asked = show("/access/audit", null, { data: log });
  await waitFor(() => screen.getByText("1 entry"));
  fireEvent.change(screen.getByLabelText("Outcome"), { target: { value: "failed" } });
  await waitFor(() => expect(asked.at(-1)).toMatchObject({ failed: true }));
});

test("a tenant in the address is ignored where no filter can clear it", async () => {
  const asked = show("/access/audit?tenant=b", "a", { data: log });
  await waitFor(() => screen.getByText("1 entry"));
  await waitFor(() => expect(asked.at(-1)).toMatchObject({ tenant: null }));
});

/** A log of n entries, ids from 1000, that grows. */
function serves(n: number) {
  const asked: Record<string, unknown>[] = [];
  const log = Array.from({ length: n }, (_, at) => entry({ id: String(1000 + at) }));
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { variables } = JSON.parse(init.body as string) as { variables: { first: number; after: string | null } };
    asked.push(variables);
    const { first, after } = variables;
    const older = log.toReversed().filter(({ id }) => after === null || id < after);
    const nodes = older.slice(0, first);
    return Response.json({ data: { auditLog: { nodes, pageInfo: { hasNextPage: older.length > first, endCursor: nodes.at(-1)?.id ?? null } } } });
  });
  return { log, asked };
}
const never = new AbortController().signal;
const ids = (rows: readonly Entry[]) => [rows.length, rows[0]?.id, rows.at(-1)?.id];

test("a refresh queries only new entries", async () => {
  const { log, asked } = serves(500);
  const { page, refresh } = entriesOf({ action: "claimRunner" });
  const first = await refresh({ rows: [], total: 0, end: null, more: false }, never);
  expect(ids(first.rows)).toEqual([100, "1499", "1400"]);
  const older = await page(300, first.end);
  const before = { ...older, rows: [...first.rows, ...older.rows] };
  for (let n = 0; n < 250; n++) log.push(entry({ id: String(1500 + n) }));
  asked.length = 0;
  const after = await refresh(before, never);
  expect(ids(after.rows)).toEqual([650, "1749", "1100"]);
  expect([after.end, after.more]).toEqual(["1100", true]);
  expect(asked.map(({ first, after, action }) => [first, after, action])).toEqual([[100, null, "claimRunner"], [100, "1650", "claimRunner"], [100, "1550", "claimRunner"]]);
  await waitFor(async () => expect(ids((await refresh(after, never)).rows)).toEqual([650, "1749", "1100"]));
});

test("a refresh shows the server's note again", async () => {
  const errors = [{ message: "3 entries are missing here", extensions: { code: "CLUSTER_UNAVAILABLE" } }];
  const { refresh } = entriesOf({});
  vi.stubGlobal("fetch", async () => Response.json({ data: log }));
  const before = await refresh({ rows: [], total: 0, end: null, more: false }, never);
  expect(before.note).toBeUndefined();
  vi.stubGlobal("fetch", async () => Response.json({ data: log, errors }));
  const missing = await refresh(before, never);
  expect([missing.rows.length, missing.note?.message]).toEqual([1, "3 entries are missing here"]);
  vi.stubGlobal("fetch", async () => Response.json({ data: log }));
  expect((await refresh(missing, never)).note).toBeUndefined();
});

test("an active filter is a button that removes it", async () => {
  show("/access/audit?actor=t1&object=r1", null, { data: log });
  await waitFor(() => screen.getByText("1 entry"));
  fireEvent.click(screen.getByRole("button", { name: "Only caller t1: show all callers" }));
  await waitFor(() => expect(window.location.search).toBe("?object=r1"));
  fireEvent.click(screen.getByRole("button", { name: "Only object r1: show all objects" }));
  await waitFor(() => expect(window.location.search).toBe(""));
});
