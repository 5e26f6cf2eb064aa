import { cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { CallerProvider } from "../lib/caller";
import Audit from "./access/audit";
import Queue from "./access/queue";
import Batches from "./batches/batches";
import Executions from "./executions/executions";
import Runners from "./runners/runners";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

test.each([["runners", Runners], ["executions", Executions], ["batches", Batches], ["auditLog", Audit], ["waitingClaims", Queue]])("the columns of %s show once the caller is known", async (list, Page) => {
  let greet = () => {};
  const greeted = new Promise<void>((resolve) => (greet = resolve));
  let listed = 0;
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query } = JSON.parse(init.body as string) as { query: string };
    if (query.includes("me {")) {
      await greeted;
      return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant: null, role: "ADMIN" }, tenants: [{ id: "a" }, { id: "b" }] } });
    }
    if (!query.includes(`${list}(`)) return Response.json({ data: { environments: [] } });
    listed++;
    return Response.json({ data: { [list]: { nodes: [], edges: [], totalCount: 0, pageInfo: { hasNextPage: false, endCursor: null } } } });
  });
  render(
    <CallerProvider>
      <Page />
    </CallerProvider>,
  );
  await waitFor(() => expect(listed).toBeGreaterThan(0));
  await screen.findByText(/^Loading/);
  expect(screen.queryAllByRole("columnheader")).toEqual([]);
  expect(screen.getAllByRole("columnheader", { hidden: true }).length).toBeGreaterThan(3); // which keep the place
  greet();
  await screen.findByRole("columnheader", { name: "Tenant" });
});
