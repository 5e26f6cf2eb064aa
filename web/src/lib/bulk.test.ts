import { expect, test } from "vitest";
import { ServerError } from "./request";
import { actOnAll, atOnce, describeTally, type Tally } from "./bulk";

test("actions run four at a time, and each is counted once", async () => {
  let running = 0;
  let most = 0;
  const reports: Tally[] = [];
  const tally = await actOnAll(
    Array.from({ length: 20 }, (_, n) => n),
    async (n) => {
      most = Math.max(most, ++running);
      await Promise.resolve();
      running--;
      if (n % 5 === 0) throw new ServerError("no");
      return n % 5 === 1 ? "ended" : "done";
    },
    (report) => reports.push(report),
    new AbortController().signal,
  );
  expect(most).toBe(atOnce);
  expect(tally).toMatchObject({ done: 12, ended: 4, failed: 4, left: 0 });
  expect(reports.map(({ left }) => left)).toEqual(Array.from({ length: 20 }, (_, n) => 19 - n));
  expect(describeTally(tally, "cancelled", "had already ended")).toBe("12 cancelled, 4 had already ended, 4 failed: no");
});

test("after a stop no action begins", async () => {
  const stop = new AbortController();
  const tally = await actOnAll([1, 2, 3, 4, 5, 6, 7, 8, 9], async () => "done", () => stop.abort(), stop.signal);
  expect(tally.done + tally.left).toBe(9);
  expect(tally.left).toBeGreaterThan(0);
  expect(describeTally(tally, "released", "were already gone")).toBe(`${tally.done} released, ${tally.left} not tried`);
});

test("each reason is reported with its count", () => {
  const reasons = new Map([["busy", 2], ["forbidden", 1], ["c", 1], ["d", 1]]);
  expect(describeTally({ done: 0, ended: 0, failed: 5, left: 0, reasons }, "cancelled", "")).toBe("0 cancelled, 5 failed: busy (2); forbidden (1); c (1); other reasons");
});
