import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, test, vi } from "vitest";
import { CallerProvider } from "../../lib/caller";
import Batch from "./batch";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

test("a case with a wrong output failed, and its first difference is shown", async () => {
  const ended = (id: string, message: string | null) => ({ id, state: "FINISHED", outcome: "EXITED", exitCode: 0, signal: null, goneReason: null, message: "exited with code 0", comparison: { message }, usage: { wallMs: 5, outputBytes: 2 } });
  const batch = {
    id: "b", tenant: "default", runnerId: null, environmentId: "shell", state: "FINISHED", outcome: "COMPLETED", message: "every case ended", hasBuild: false, caseCount: 2, endedCount: 2,
    failedCount: 1, skippedCount: 0, queuedAt: "2026-11-28T00:00:00Z", finishedAt: "2026-11-28T00:00:01Z", stopOnFailure: false, build: null,
    cases: { nodes: [{ index: 0, state: "PASSED", execution: ended("x", null) }, { index: 1, state: "FAILED", execution: ended("y", 'line 1: "2" instead of "3"') }], pageInfo: { hasNextPage: false, endCursor: "1" } },
  };
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(440); // the table renders only visible rows
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query } = JSON.parse(init.body as string) as { query: string };
    if (query.includes("me {")) return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant: null, role: "ADMIN" }, tenants: [] } });
    return Response.json({ data: { batch } });
  });
  render(
    <CallerProvider>
      <Batch id="b" />
    </CallerProvider>,
  );
  await screen.findByText('Wrong output after 5 ms: line 1: "2" instead of "3".');
  screen.getByText("1 failed");
  screen.getByText("Passed");
  screen.getByText("Succeeded after 5 ms.");
});

test("cases of all pages are shown", async () => {
  const batch = {
    id: "b", tenant: "default", runnerId: null, environmentId: "shell", state: "FINISHED", outcome: "CANCELLED", message: null, hasBuild: false, caseCount: 3, endedCount: 0,
    failedCount: 0, skippedCount: 3, queuedAt: "2026-11-28T00:00:00Z", finishedAt: "2026-11-28T00:00:01Z", stopOnFailure: false, build: null,
  };
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(440); // the table renders only visible rows
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query, variables } = JSON.parse(init.body as string) as { query: string; variables: { after?: string } };
    if (query.includes("me {")) return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant: null, role: "ADMIN" }, tenants: [] } });
    const index = variables.after === undefined ? 0 : Number(variables.after) + 1; // one case in each page
    const cases = { nodes: [{ index, state: "SKIPPED", execution: null }], pageInfo: { hasNextPage: index < 2, endCursor: String(index) } };
    return Response.json({ data: { batch: { ...batch, cases } } });
  });
  render(
    <CallerProvider>
      <Batch id="b" />
    </CallerProvider>,
  );
  await screen.findByText("Case 2");
  screen.getByText("Case 0");
  screen.getByText("3 cases");
});
