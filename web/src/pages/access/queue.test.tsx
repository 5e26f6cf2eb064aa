import { act, cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { CallerProvider } from "../../lib/caller";
import Queue, { columnsAt, inOrder, type Waiting } from "./queue";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  window.history.replaceState(null, "", "/");
});

const now = Date.parse("2026-11-21T12:00:00Z");
const claim = (change: Partial<Waiting>): Waiting => ({ id: "1", tenant: "a", environmentId: "python", position: 1, estimatedWaitMs: 4000, since: "2026-11-21T11:59:30Z", expiresAt: "2026-11-21T12:01:00Z", ...change });

test("in each environment the next claim comes first, and claims without a position last", () => {
  const claims = [claim({ id: "1", position: null }), claim({ id: "2", position: 10 }), claim({ id: "3", position: 2 }), claim({ id: "4", environmentId: "java" }), claim({ id: "5", position: null })];
  expect(inOrder(claims).map(({ id }) => id)).toEqual(["4", "3", "2", "1", "5"]);
});

test("each claim shows its position and waiting time", () => {
  const shown = (row: Waiting) => {
    const { container } = render(<>{columnsAt(now).map(({ name, cell }) => <p key={name}>{cell(row)}</p>)}</>);
    return [...container.querySelectorAll("p")].map((cell) => cell.textContent);
  };
  expect(shown(claim({ position: 7 }))).toEqual(["python", "7", "30 s", "4 s", "in 1 min"]);
  cleanup();
  expect(shown(claim({ position: null, estimatedWaitMs: null }))).toEqual(["python", "Unknown, or quota reached", "30 s", "–", "in 1 min"]);
});

/** Shows the page to a caller of a tenant, and returns the variables of its queries. */
function show(tenant: string | null, tenants: readonly string[], address: string, { nodes = [], totalCount = 0 }: { nodes?: readonly Waiting[]; totalCount?: number } = {}) {
  window.history.replaceState(null, "", address);
  const asked: unknown[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query, variables } = JSON.parse(init.body as string) as { query: string; variables: object };
    if (query.includes("waitingClaims")) {
      asked.push(variables);
      return Response.json({ data: { waitingClaims: { nodes, totalCount } } });
    }
    if (query.includes("me {")) return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant, role: "OBSERVER" }, tenants: tenants.map((id) => ({ id })) } });
    return Response.json({ data: { environments: [{ id: "python" }] } });
  });
  render(
    <CallerProvider>
      <Queue />
    </CallerProvider>,
  );
  return asked;
}

test.each([
  ["all tenants", null, ["a", "default"], true],
  ["one tenant", "a", ["a"], false],
])("a caller for %s has the filters that apply to it", async (_, tenant, tenants, names) => {
  const asked = show(tenant, tenants, "/access/queue?environment=python");
  await waitFor(() => screen.getByText("No claim matches these filters."));
  await waitFor(() => expect(document.querySelector(".pending")).toBeNull());
  expect(asked[0]).toEqual({ environmentId: "python", tenant: null });
  expect(screen.queryByLabelText("Tenant") !== null).toBe(names);
  expect(screen.queryByRole("columnheader", { name: "Tenant" }) !== null).toBe(names);
});

test.each([
  ["all tenants", null, ["a", "b"], "b"],
  ["one tenant", "a", ["a"], null],
])("a tenant in the address filters the queue of a caller for %s only where a filter can clear it", async (_, tenant, tenants, wanted) => {
  const asked = show(tenant, tenants, "/access/queue?tenant=b");
  await waitFor(() => screen.getByText(/No waiting claims/));
  await waitFor(() => expect(asked.at(-1)).toEqual({ environmentId: null, tenant: wanted }));
  expect(screen.queryByLabelText("Tenant") !== null).toBe(wanted !== null);
  expect(screen.queryByText("No claim matches these filters.") !== null).toBe(wanted !== null);
});

test.each([
  ["one tenant", "a", true],
  ["all tenants", null, false],
])("an empty queue shows to a caller for %s whether other tenants' claims are hidden", async (_, tenant, hides) => {
  show(tenant, ["a"], "/access/queue");
  await waitFor(() => screen.getByText("No waiting claims"));
  expect(screen.queryByText("Claims of other tenants aren't shown.") !== null).toBe(hides);
});

test("a long queue shows the oldest claims", async () => {
  show(null, ["a"], "/access/queue", { nodes: [claim({})], totalCount: 20_000 });
  await waitFor(() => screen.getByText("The oldest 1 of 20,000 claims"));
});

test("claims show only after the columns are known", async () => {
  const asked = show(null, ["a", "b"], "/access/queue", { nodes: [claim({})], totalCount: 1 });
  const answering = fetch;
  cleanup();
  let known = () => {};
  const held = new Promise<void>((resolve) => (known = resolve));
  vi.stubGlobal("fetch", async (address: string, init: RequestInit) => {
    if ((init.body as string).includes("me {")) await held;
    return answering(address, init);
  });
  asked.length = 0;
  render(
    <CallerProvider>
      <Queue />
    </CallerProvider>,
  );
  await waitFor(() => expect(asked).toHaveLength(1));
  await act(async () => {});
  expect(screen.getByRole("status").textContent).toContain("Loading the queue");
  known();
  await waitFor(() => screen.getByText("1 claim"));
  expect(screen.getByRole("columnheader", { name: "Tenant" })).toBeTruthy();
});
