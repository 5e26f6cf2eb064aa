import { expect, test, vi } from "vitest";
import { ServerError } from "../../lib/request";
import { begin } from "./presets";
import { Run, type Calls, type Phase } from "./run";

const limit = 100_000; // ms, which only ends a test that would hang
const program = begin({ id: "python", image: "host" });

/** A fake server that records calls, and responds when the test says so. */
function fake(change: Partial<Calls> = {}) {
  const said: string[] = [];
  const phases: Phase[] = [];
  let on: Parameters<Calls["watch"]>[1] | undefined;
  const note = <T,>(what: string, value: T) => async (id: string) => {
    said.push(`${what} ${id}`);
    return value;
  };
  const calls: Calls = {
    claim: note("claim", { runnerId: "r", ticket: undefined }),
    watch: (_, follower) => {
      on = follower;
      return () => said.push("unfollow");
    },
    leave: note("leave", undefined),
    write: note("write", undefined),
    start: note("start", "x"),
    feed: note("feed", undefined),
    cancel: note("cancel", undefined),
    ended: note("ended", undefined),
    release: note("release", undefined),
    ...change,
  };
  const run = new Run(calls, (phase) => phases.push(phase));
  return { run, said, phases, at: () => phases.at(-1)?.at, on: () => on!, note };
}
const ticket = { id: "t", position: 2, estimatedWaitMs: null };
const waits: Partial<Calls> = { claim: async () => ({ runnerId: undefined, ticket }) };

test("a run claims, writes, starts, feeds, and releases once", async () => {
  const { run, said, phases } = fake();
  await run.begin(program);
  expect(said).toEqual(["claim python", "write r", "start r", "feed x"]);
  expect(phases.map(({ at }) => at)).toEqual(["preparing", "preparing", "started"]);
  await Promise.all([run.release(), run.release()]);
  expect(said.filter((one) => one === "release r")).toHaveLength(1);
});

test("a waiting run reports its position", async () => {
  const { run, said, phases, at, on } = fake(waits);
  const begun = run.begin(program);
  await vi.waitFor(() => expect(at()).toBe("waiting"), limit);
  on().turn({ position: 1, estimatedWaitMs: 5 });
  expect(phases.at(-1)).toEqual({ at: "waiting", turn: { position: 1, estimatedWaitMs: 5 } });
  on().claimed("r2");
  await begun;
  expect(said).toEqual(["unfollow", "write r2", "start r2", "feed x"]);
});

test("a run stopped while waiting cancels its ticket", async () => {
  const { run, said, at } = fake(waits);
  const begun = run.begin(program);
  await vi.waitFor(() => expect(at()).toBe("waiting"), limit);
  await run.stop();
  expect(at()).toBe("stopped");
  await begun;
  expect(said).toEqual(["unfollow", "leave t"]);
});

test("a runner claimed during the stop is released", async () => {
  const { run, said, at } = fake({ ...waits, leave: async () => "r3" });
  const begun = run.begin(program);
  await vi.waitFor(() => expect(at()).toBe("waiting"), limit);
  await run.stop();
  await begun;
  expect(said).toEqual(["unfollow", "release r3"]);
});

test.each<[keyof Calls, string[]]>([
  ["claim", ["claim python", "release r"]],
  ["write", ["claim python", "write r", "release r"]],
  ["start", ["claim python", "write r", "start r", "cancel x", "ended x", "release r"]],
])("stopped during %s, it leaves nothing behind", async (during, want) => {
  const of = fake();
  const real = (of.run as unknown as { calls: Record<string, (...args: unknown[]) => Promise<unknown>> }).calls;
  const answer = real[during]!;
  real[during] = async (...args) => {
    const value = await answer(...args);
    await of.run.stop();
    return value;
  };
  await of.run.begin(program);
  expect(of.said).toEqual(want);
  expect(of.at()).toBe("stopped");
});

test("stopping a running program cancels it and then releases its runner", async () => {
  const { run, said, at } = fake();
  await run.begin(program);
  said.length = 0;
  await run.stop();
  expect(said).toEqual(["cancel x", "ended x", "release r"]);
  expect(at()).toBe("started");
});

test.each<[string, Partial<Calls>, string[]]>([
  ["no runner", { claim: () => Promise.reject(new ServerError("none", "QUOTA_EXCEEDED")) }, []],
  ["no room for its files", { write: () => Promise.reject(new ServerError("full")) }, ["claim python", "release r"]],
])("with %s the run fails and leaves nothing behind", async (_, change, want) => {
  const { run, said, at } = fake(change);
  await run.begin(program);
  expect(at()).toBe("failed");
  expect(said).toEqual(want);
});

test("a failed input is reported, and the program continues", async () => {
  const { run, said, phases, at } = fake({ feed: () => Promise.reject(new ServerError("refused", "FORBIDDEN")) });
  await run.begin(program);
  await vi.waitFor(() => expect(phases.at(-1)).toMatchObject({ at: "started", executionId: "x", unfed: { message: "refused" } }), limit);
  expect([at(), said]).toEqual(["started", ["claim python", "write r", "start r"]]);
});

test("a ticket that ends without a runner fails the run", async () => {
  const { run, phases, at, on } = fake(waits);
  const begun = run.begin(program);
  await vi.waitFor(() => expect(at()).toBe("waiting"), limit);
  on().failed(new ServerError("nobody came", "NO_RUNNER_AVAILABLE"));
  await begun;
  expect(phases.at(-1)).toMatchObject({ at: "failed", error: { message: "nobody came" } });
});
