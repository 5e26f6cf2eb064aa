import { cleanup, render, screen, waitFor } from "@testing-library/react";
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

test("in each environment the next claim comes first, and claims without a place last", () => {
  const claims = [claim({ id: "1", position: null }), claim({ id: "2", position: 10 }), claim({ id: "3", position: 2 }), claim({ id: "4", environmentId: "java" }), claim({ id: "5", position: null })];
  expect(inOrder(claims).map(({ id }) => id)).toEqual(["4", "3", "2", "1", "5"]);
});

test("each claim says where it stands, and for how long", () => {
  const shown = (row: Waiting) => {
    const { container } = render(<>{columnsAt(now).map(({ name, cell }) => <p key={name}>{cell(row)}</p>)}</>);
    return [...container.querySelectorAll("p")].map((cell) => cell.textContent);
  };
  expect(shown(claim({ position: 7 }))).toEqual(["python", "7", "30 s", "4 s", "in 1 min"]);
  cleanup();
  expect(shown(claim({ position: null, estimatedWaitMs: null }))).toEqual(["python", "–", "30 s", "–", "in 1 min"]);
});

test.each([
  ["all tenants", null, ["a", "default"], true],
  ["one tenant", "a", ["a"], false],
])("a caller for %s filters by what it sees", async (_, tenant, tenants, names) => {
  window.history.replaceState(null, "", "/access/queue?environment=python");
  const asked: unknown[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query, variables } = JSON.parse(init.body as string) as { query: string; variables: object };
    if (query.includes("waitingClaims")) {
      asked.push(variables);
      return Response.json({ data: { waitingClaims: { nodes: [], totalCount: 0 } } });
    }
    if (query.includes("me {")) return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant, role: "OBSERVER" }, tenants: tenants.map((id) => ({ id })) } });
    return Response.json({ data: { environments: [{ id: "python" }] } });
  });
  render(
    <CallerProvider>
      <Queue />
    </CallerProvider>,
  );
  await waitFor(() => screen.getByText("None matches these filters."));
  await waitFor(() => expect(document.querySelector(".pending")).toBeNull());
  expect(asked[0]).toEqual({ environmentId: "python", tenant: null });
  expect(screen.queryByLabelText("Tenant") !== null).toBe(names);
  expect(screen.queryByRole("columnheader", { name: "Tenant" }) !== null).toBe(names);
});
