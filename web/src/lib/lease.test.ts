import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { hold, lease, renewLeases } from "./lease";

/** How the server answers for each execution: whether it renewed, or a code. */
let answers: Record<string, boolean | string>;
let asked: string[];

beforeEach(() => {
  vi.useFakeTimers();
  asked = [];
  vi.stubGlobal("fetch", (_address: string, init: RequestInit) => {
    const { id } = (JSON.parse(init.body as string) as { variables: { id: string } }).variables;
    asked.push(id);
    const answer = answers[id];
    const body = typeof answer === "string" ? { errors: [{ message: answer, extensions: { code: answer } }] } : { data: { renewLease: { renewed: answer } } };
    return Promise.resolve(new Response(JSON.stringify(body)));
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

test("leases are renewed at least three times in each period, also after a reload and a failed request, until their executions end", async () => {
  hold("ends");
  hold("lasts");
  hold("lasts");
  answers = { ends: true, lasts: "INTERNAL", gone: "EXECUTION_NOT_FOUND" };
  renewLeases(); // as when the page is loaded again
  await vi.advanceTimersByTimeAsync(0);
  expect(asked).toEqual(["ends", "lasts"]);
  hold("gone");
  answers = { ...answers, ends: false, lasts: true };
  await vi.advanceTimersByTimeAsync((lease * 1_000) / 3);
  expect(asked.slice(2)).toEqual(["ends", "lasts", "gone"]);
  await vi.advanceTimersByTimeAsync((lease * 1_000) / 3);
  expect(asked.slice(5).every((id) => id === "lasts")).toBe(true);
  expect(asked.length).toBeGreaterThan(5);
});

test("a storage with something else is no error", async () => {
  for (const text of ["{", "7", "[7]"]) {
    sessionStorage.setItem("rockpool.leases", text);
    renewLeases();
    await vi.advanceTimersByTimeAsync(0);
  }
  expect(asked).toEqual([]);
});
