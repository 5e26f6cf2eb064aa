import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Role } from "../../lib/access";
import { CallerProvider } from "../../lib/caller";
import Executions from "./executions";

// Rows have a place only where there is a layout.
vi.mock("@tanstack/react-virtual", () => ({
  useVirtualizer: ({ count, getItemKey }: { count: number; getItemKey: (index: number) => string }) => ({
    getVirtualItems: () => Array.from({ length: count }, (_, index) => ({ index, key: getItemKey(index), start: 0 })),
    getTotalSize: () => 0,
    measure: () => {},
  }),
}));

beforeEach(() => window.history.replaceState(null, "", "/executions"));
afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const row = (id: string, state: string) => ({
  id,
  tenant: "default",
  environmentId: "python",
  runnerId: "r",
  commandLine: `python3 ${id}.py`,
  labels: [{ name: "user", value: "ada" }],
  state,
  outcome: state === "FINISHED" ? "EXITED" : null,
  exitCode: 0,
  usage: null,
  timestamps: { queuedAt: "2026-11-21T00:00:00Z" },
});

function serve(role: Role | null, rows: unknown[]) {
  const asked: Record<string, unknown>[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query, variables } = JSON.parse(init.body as string);
    if (query.includes("me {")) return Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant: "default", role }, tenants: [] } });
    if (!query.includes("executions(")) return Response.json({ data: { environments: [] } });
    asked.push(variables);
    return Response.json({ data: { executions: { nodes: rows, totalCount: rows.length, pageInfo: { hasNextPage: false, endCursor: null } } } });
  });
  render(
    <CallerProvider>
      <Executions />
    </CallerProvider>,
  );
  return asked;
}

test("callers with the access have a checkbox for each unfinished execution", async () => {
  serve("CLIENT", [row("a", "RUNNING"), row("b", "FINISHED"), row("c", "PENDING")]);
  await screen.findByText("python3 a.py");
  expect(screen.getAllByRole("checkbox").map((box) => box.getAttribute("aria-label"))).toEqual(["Select all loaded rows", "Select python3 a.py", "Select python3 c.py"]);
  fireEvent.click(screen.getByLabelText("Select python3 c.py"));
  expect(screen.getByLabelText<HTMLInputElement>("Select all loaded rows").indeterminate).toBe(true);
  fireEvent.click(screen.getByRole("button", { name: "Cancel 1 …" }));
  expect(screen.getByText("Cancel 1 execution?")).toBeTruthy();
});

test.each(["OBSERVER", null] as const)("callers without the access have no checkboxes: %s", async (role) => {
  serve(role, [row("a", "RUNNING")]);
  await screen.findByText("python3 a.py");
  expect(screen.queryAllByRole("checkbox")).toEqual([]);
  expect(screen.queryByRole("button", { name: /^Cancel/ })).toBeNull();
});

test("a click on a label filters by it, and going back removes the filter", async () => {
  const asked = serve("OBSERVER", [row("a", "RUNNING")]);
  fireEvent.click(await screen.findByText("user=ada"));
  await waitFor(() => expect(asked.at(-1)).toMatchObject({ labels: [{ name: "user", value: "ada" }] }));
  expect(window.location.search).toBe("?label=user%3Dada");
  fireEvent.click(screen.getByRole("button", { name: "Failed" }));
  await waitFor(() => expect(asked.at(-1)).toMatchObject({ failed: true, labels: [{ name: "user", value: "ada" }] }));
  fireEvent.click(screen.getByTitle("without this label"));
  await waitFor(() => expect(asked.at(-1)).toMatchObject({ failed: true, labels: null }));
  expect(window.location.search).toBe("?outcome=failed");
});

test("an unusable filter in the address is reported and ignored", async () => {
  window.history.replaceState(null, "", "/executions?state=NO&outcome=TIME_LIMIT&label=%3D&label=user&from=x");
  const asked = serve("OBSERVER", []);
  await screen.findByText(/which are ignored.*state=NO.*label==.*from=x/);
  expect(asked[0]).toMatchObject({ states: [], outcomes: ["TIME_LIMIT"], labels: [{ name: "user", value: null }], from: null });
  await screen.findByText("No matches for these filters: time limit, label user.");
  fireEvent.click(screen.getByText("Remove from the address"));
  expect(window.location.search).toBe("?outcome=TIME_LIMIT&label=user");
  fireEvent.click(screen.getByText("Clear the filters"));
  await screen.findByText(/Executions appear here/);
});
