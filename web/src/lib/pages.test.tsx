import { act, cleanup, renderHook, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { executionsOf } from "../pages/executions/useexecutions";
import { runnersOf } from "../pages/runners/userunners";
import { usePages } from "./pages";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

interface Row {
  id: string;
  state: string;
}
interface Variables {
  id?: string;
  states?: string[];
  first: number;
  after: string | null;
}

/** A server with these rows, the oldest first, that answers by pages as the real one does. */
function serves(field: "runners" | "executions", rows: Row[], answering = (_: Variables) => Promise.resolve()) {
  const asked: Variables[] = [];
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { variables } = JSON.parse(init.body as string) as { variables: Variables };
    asked.push(variables);
    await answering(variables);
    const { first, after, states, id } = variables;
    if (id !== undefined) return Response.json({ data: { execution: rows.find((row) => row.id === id) } });
    const all = rows.filter((row) => !states?.length || states.includes(row.state)).reverse();
    const rest = after === null ? all : all.filter((row) => row.id < after);
    const nodes = rest.slice(0, first);
    return Response.json({ data: { [field]: { nodes, edges: nodes.map((node) => ({ cursor: node.id, node })), totalCount: all.length, pageInfo: { hasNextPage: rest.length > first, endCursor: nodes.at(-1)?.id ?? null } } } });
  });
  return asked;
}

const row = (n: number, state = "IDLE") => ({ id: String(n).padStart(6, "0"), state });
const many = (n: number, state?: string) => Array.from({ length: n }, (_, i) => row(i, state));

test("10,000 runners load by pages, and every change shows", async () => {
  const rows = many(10_000);
  const asked = serves("runners", rows);
  const source = runnersOf({ environmentId: null, states: [], heldBy: null });
  const { result } = renderHook(() => usePages(source, 60_000));
  await waitFor(() => expect(result.current.rows).toHaveLength(100));
  expect(result.current.total).toBe(10_000);
  expect(result.current.rows[0]!.id).toBe("009999");
  while (result.current.rows.length < 10_000) {
    const before = result.current.rows.length;
    await act(() => result.current.more());
    expect(result.current.rows.length).toBeGreaterThan(before);
  }
  expect(new Set(result.current.rows.map(({ id }) => id)).size).toBe(10_000);
  expect(asked.length).toBeLessThan(30);

  rows[5] = row(5, "CLAIMED"); // far beyond the first page
  rows.splice(5_000, 1);
  rows.push(row(10_000));
  act(() => result.current.again());
  await waitFor(() => expect(result.current.rows[0]!.id).toBe("010000"));
  expect(result.current.rows).toHaveLength(10_000);
  expect(result.current.rows.find(({ id }) => id === "000005")!.state).toBe("CLAIMED");
  expect(result.current.rows.some(({ id }) => id === "005000")).toBe(false);
});

test("a page loaded during a refresh stays", async () => {
  const rows = many(1_000);
  let answer = () => {};
  let slow = false;
  const asked = serves("runners", rows, ({ after }) => (slow && after === null ? new Promise((resolve) => (answer = resolve)) : Promise.resolve()));
  const source = runnersOf({});
  const { result } = renderHook(() => usePages(source, 60_000));
  await waitFor(() => expect(result.current.rows).toHaveLength(100));
  rows.push(row(1_000));
  slow = true;
  act(() => result.current.again());
  await waitFor(() => expect(asked).toHaveLength(2));
  await act(() => result.current.more());
  expect(result.current.rows).toHaveLength(600);
  slow = false;
  answer();
  await waitFor(() => expect(result.current.rows[0]!.id).toBe("001000"));
  expect(result.current.rows).toHaveLength(600);
});

test("the server applies filters", async () => {
  const asked = serves("runners", [row(1), row(2, "CLAIMED")]);
  const source = runnersOf({ environmentId: "a", states: ["CLAIMED"], heldBy: "course" });
  const { result } = renderHook(() => usePages(source, 60_000));
  await waitFor(() => expect(result.current.rows.map(({ id }) => id)).toEqual(["000002"]));
  expect(asked[0]).toMatchObject({ environmentId: "a", states: ["CLAIMED"], heldBy: "course" });
});

test("a refresh updates unfinished executions beyond the first page", async () => {
  const rows = many(300, "FINISHED");
  rows[42] = row(42, "RUNNING");
  serves("executions", rows);
  const source = executionsOf({});
  const { result } = renderHook(() => usePages(source, 60_000));
  await waitFor(() => expect(result.current.rows).toHaveLength(100));
  await act(() => result.current.more());
  const states = () => [...new Set(result.current.rows.map(({ state }) => state))];
  expect(states()).toContain("RUNNING");
  rows[42] = row(42, "FINISHED");
  rows.push(row(300, "FINISHED"));
  act(() => result.current.again());
  await waitFor(() => expect(result.current.rows).toHaveLength(301));
  expect(states()).toEqual(["FINISHED"]);
});

test("executions that end beyond the first page disappear from a list of running ones", async () => {
  const rows = many(300, "RUNNING");
  serves("executions", rows);
  const source = executionsOf({ states: ["RUNNING"] });
  const { result } = renderHook(() => usePages(source, 60_000));
  await waitFor(() => expect(result.current.rows).toHaveLength(100));
  await act(() => result.current.more());
  expect(result.current.rows).toHaveLength(300);
  rows[250] = row(250, "FINISHED"); // in the first page
  rows[150] = row(150, "FINISHED"); // beyond it
  act(() => result.current.again());
  await waitFor(() => expect(result.current.total).toBe(298));
  const ids = result.current.rows.map(({ id }) => id);
  expect(ids).not.toContain("000250");
  expect(ids).not.toContain("000150");
  expect(ids).toEqual([...ids].sort().reverse());
});
