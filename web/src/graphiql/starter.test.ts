import { expect, test } from "vitest";
import { note, renew, startedBy, starterOf, withId } from "./starter";

const first = (query: string) => /^(query|mutation|subscription) (\w+)/m.exec(query)![2];
const latest = (id: string) => ({ executions: { nodes: [{ id, environmentId: "python" }] }, environments: [{ id: "c" }, { id: "python" }] });
const empty = { executions: { nodes: [] }, environments: [{ id: "c" }] };

test("with an execution the starter begins with Output and has its id and environment", () => {
  const { query, variables } = starterOf(latest("x1"));
  expect(first(query)).toBe("Output");
  expect(JSON.parse(variables)).toMatchObject({ id: "x1", input: { environmentId: "python" } });
});

test("without an execution the starter begins with Run, in an existing environment", () => {
  const { query, variables } = starterOf(empty);
  expect(first(query)).toBe("Run");
  expect(JSON.parse(variables)).toMatchObject({ id: "", input: { environmentId: "c" } });
  expect(first(starterOf(undefined).query)).toBe("Run");
});

test("the starter doesn't use a deleted environment of the latest execution", () => {
  const { variables } = starterOf({ ...latest("x1"), environments: [{ id: "c" }] });
  expect(JSON.parse(variables)).toMatchObject({ id: "x1", input: { environmentId: "c" } });
});

test("a started execution fills in its id", () => {
  expect(startedBy({ data: { run: { execution: { id: "x2" } } } })).toBe("x2");
  for (const answer of [undefined, null, {}, { data: null }, { data: { run: null } }, { data: { environments: [] } }]) expect(startedBy(answer)).toBeUndefined();
  expect(JSON.parse(withId('{"id": "x1", "more": 1}', "x2", "x1"))).toEqual({ id: "x2", more: 1 });
  expect(JSON.parse(withId('{"id": ""}', "x2", "x1"))).toEqual({ id: "x2" });
  for (const kept of ["", "{", '{"input": {}}', '{"id": "a-person\'s"}']) expect(withId(kept, "x2", "x1")).toBe(kept);
});

/** What GraphiQL has stored, with the starter in its active tab. */
function stored(query: string, variables: string) {
  const items = new Map([["graphiql:tabState", JSON.stringify({ activeTabIndex: 0, tabs: [{ query, variables }, { query: "{ mine }", variables: null }] })]]);
  return { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => void items.set(key, value) };
}
type Stored = ReturnType<typeof stored>;
const tabs = (storage: Stored) => JSON.parse(storage.getItem("graphiql:tabState")!).tabs as { query: string; variables: string }[];

test("a starter of an earlier visit gets the latest id, and other tabs stay unchanged", () => {
  const before = starterOf(empty);
  const storage = stored(before.query, before.variables);
  const now = starterOf(latest("x1"));
  renew(storage, now);
  expect(tabs(storage)).toEqual([{ query: now.query, variables: now.variables }, { query: "{ mine }", variables: null }]);
  expect(storage.getItem("graphiql:query")).toBe(now.query);
  expect(storage.getItem("graphiql:variables")).toBe(now.variables);
  const later = starterOf(latest("x2"));
  renew(storage, later);
  expect(tabs(storage)[0]).toEqual({ query: later.query, variables: later.variables });
});

test("an id that the page filled in is replaced", () => {
  const { query, variables } = starterOf(latest("x1"));
  const storage = stored(query, withId(variables, "x2", "x1"));
  note(storage, "x2");
  renew(storage, starterOf(latest("x3")));
  expect(tabs(storage)[0]!.variables).toContain("x3");
});

test("edited queries and variables stay unchanged", () => {
  const { query, variables } = starterOf(latest("x1"));
  for (const [text, values] of [[query, withId(variables, "chosen", "x1")], [`${query}\n# mine`, variables], [query, "{"]] as const) {
    const storage = stored(text, values);
    note(storage, "x1");
    renew(storage, starterOf(latest("x2")));
    expect(tabs(storage)[0]).toEqual({ query: text, variables: values });
  }
});

test("a first visit stores the variables too", () => {
  const items = new Map<string, string>();
  const starter = starterOf(latest("x1"));
  renew({ getItem: (key) => items.get(key) ?? null, setItem: (key, value) => void items.set(key, value) }, starter);
  expect(items.get("graphiql:variables")).toBe(starter.variables);
});

test("unreadable storage stays unchanged", () => {
  const items = new Map([["graphiql:tabState", "nonsense"]]);
  renew({ getItem: (key) => items.get(key) ?? null, setItem: (key, value) => void items.set(key, value) }, starterOf(empty));
  expect(items.get("graphiql:tabState")).toBe("nonsense");
});

test("full storage causes no error", () => {
  const before = starterOf(empty);
  const { getItem } = stored(before.query, before.variables);
  const full = { getItem, setItem: () => { throw new DOMException("full", "QuotaExceededError"); } };
  renew(full, starterOf(latest("x1")));
  note(full, "x1");
});
