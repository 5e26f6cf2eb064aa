import { parse } from "@0no-co/graphql.web";
import type { TadaDocumentNode } from "gql.tada";
import type { Sink } from "graphql-ws";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { follow } from "./follow";
import type { Link } from "./link";
import { session } from "./session";

const document = parse("subscription S($after: String) { tick(after: $after) }") as unknown as TadaDocumentNode<{ tick: number }, { after: number | null }>;

/** A connection that the test controls. */
class Wire {
  readonly attempts: { variables: unknown; sink: Sink; released: boolean }[] = [];
  losses = 0;
  readonly client = {
    subscribe: (payload: { variables?: unknown }, sink: Sink) => {
      const attempt = { variables: payload.variables, sink, released: false };
      this.attempts.push(attempt);
      return () => {
        attempt.released = true;
      };
    },
  };
  lost = () => {
    this.losses++;
  };
  left = () => {};
  current = () => "lost";
  get last() {
    return this.attempts.at(-1)!;
  }
  tick(tick: number) {
    this.last.sink.next({ data: { tick } });
  }
}

let wire: Wire;
let ticks: number[];
let failed: string[];
let begun: boolean[];
let ended: boolean;
let stop: () => void;

beforeEach(() => {
  vi.useFakeTimers();
  wire = new Wire();
  [ticks, failed, begun, ended] = [[], [], [], false];
  stop = follow(
    document,
    {
      variables: () => ({ after: ticks.at(-1) ?? null }),
      next: ({ tick }) => ticks.push(tick),
      begin: (again) => begun.push(again),
      end: () => (ended = true),
      failed: (error) => failed.push(error.code),
    },
    wire as unknown as Link,
  );
});
afterEach(() => {
  stop();
  vi.useRealTimers();
});

test("a lost connection resumes after the last event", () => {
  wire.tick(1);
  wire.tick(2);
  wire.last.sink.error(new CloseEvent("close", { code: 1006 }));
  expect(wire.losses).toBe(1);
  vi.advanceTimersByTime(10_000);
  expect(wire.attempts.map((attempt) => attempt.variables)).toEqual([{ after: null }, { after: 2 }]);
  expect(begun).toEqual([false, true]);
});

test("events of an ended attempt are ignored", () => {
  const { sink } = wire.last;
  sink.error(new CloseEvent("close", { code: 1006 }));
  sink.next({ data: { tick: 9 } });
  sink.complete();
  expect([ticks, ended]).toEqual([[], false]);
});

test("delays grow with failures and reset after a success", () => {
  const delay = () => {
    const attempts = wire.attempts.length;
    wire.last.sink.error(new CloseEvent("close", { code: 1006 }));
    let waited = 0;
    while (wire.attempts.length === attempts) {
      vi.advanceTimersByTime(10);
      waited += 10;
    }
    return waited;
  };
  const waits = Array.from({ length: 8 }, delay);
  expect(waits[0]).toBeLessThan(300);
  expect(waits.at(-1)).toBeGreaterThan(1_500);
  expect(Math.max(...waits)).toBeLessThan(5_000);
  wire.tick(1);
  expect(delay()).toBeLessThan(300);
});

test("SLOW_CONSUMER resumes, and other errors end the subscription", () => {
  wire.last.sink.error([{ message: "slow", extensions: { code: "SLOW_CONSUMER" } }] as never);
  vi.advanceTimersByTime(1_000);
  expect(wire.attempts).toHaveLength(2);
  wire.last.sink.error([{ message: "no", extensions: { code: "EXECUTION_NOT_FOUND" } }] as never);
  vi.advanceTimersByTime(60_000);
  expect(wire.attempts).toHaveLength(2);
  expect(failed).toEqual(["EXECUTION_NOT_FOUND"]);
});

test("the event online starts the waiting attempt early, and only one", () => {
  wire.last.sink.error(new CloseEvent("close", { code: 1006 }));
  window.dispatchEvent(new Event("online"));
  expect(wire.attempts).toHaveLength(2);
  window.dispatchEvent(new Event("online"));
  vi.advanceTimersByTime(60_000);
  expect(wire.attempts).toHaveLength(2);
  wire.last.sink.error(new CloseEvent("close", { code: 1006 }));
  vi.advanceTimersByTime(10_000);
  window.dispatchEvent(new Event("online"));
  expect(wire.attempts).toHaveLength(3);
});

test("completion by the server ends the subscription", () => {
  wire.last.sink.complete();
  vi.advanceTimersByTime(60_000);
  expect([ended, wire.attempts.length]).toEqual([true, 1]);
});

test("a stopped follower gets no events and leaves the link", () => {
  stop();
  expect(wire.last.released).toBe(true);
  wire.tick(1);
  wire.last.sink.error(new CloseEvent("close", { code: 1006 }));
  vi.advanceTimersByTime(60_000);
  expect([ticks, wire.attempts.length]).toEqual([[], 1]);
});

test("a rejected token is requested, and then the subscription resumes", () => {
  wire.last.sink.error(new CloseEvent("close", { code: 4403, reason: "the token was revoked" }));
  expect([session.tokenRequired(), failed]).toEqual([true, []]);
  session.set("another", false);
  expect(wire.attempts).toHaveLength(2);
  session.forget();
});

test.each([
  ["a close", new CloseEvent("close", { code: 4403, reason: "the grant has expired" })],
  ["an error", [{ message: "the grant has expired", extensions: { code: "UNAUTHENTICATED" } }]],
])("a rejected grant ends the subscription, by %s", (_, end) => {
  vi.spyOn(session, "hasGrant").mockReturnValue(true);
  vi.spyOn(session, "requireToken").mockImplementation(() => {});
  wire.last.sink.error(end as never);
  vi.advanceTimersByTime(60_000);
  expect([failed, wire.attempts.length]).toEqual([["UNAUTHENTICATED"], 1]);
});
