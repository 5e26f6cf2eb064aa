import { expect, test } from "vitest";
import { problemsFirst, type Alert, type Pool } from "./pools";

const pool = (of: Partial<Pool>): Pool => ({ environmentId: "", revision: 1, size: 2, idle: 2, starting: 0, claimed: 0, stopping: 0, waiting: 0, reason: null, deleted: false, image: null, ...of });
const rows = [
  { id: "a-ready", pool: pool({}) },
  { id: "b-filling", pool: pool({ idle: 1 }) },
  { id: "c-short", pool: pool({ idle: 1, reason: "memory exhausted" }) },
  { id: "d-Alerts", pool: pool({ idle: 0 }) },
  { id: "e-on-demand", pool: pool({ size: 0, idle: 0 }) },
];
const alerts: ReadonlyMap<string, Alert> = new Map([["d-Alerts", { environmentId: "d-Alerts", state: "RAISED", since: "2026-11-21T00:09:30Z", idle: 0, size: 2, threshold: 0.5, reason: "" }]]);
const ids = (search?: string) => problemsFirst(rows, alerts, search).map(({ id }) => id);

test("pools with problems come first", () => {
  expect(ids()).toEqual(["d-Alerts", "c-short", "b-filling", "a-ready", "e-on-demand"]);
});

test("the search matches ids", () => {
  expect(ids(" ALERT ")).toEqual(["d-Alerts"]);
  expect(ids("e")).toEqual(["d-Alerts", "a-ready", "e-on-demand"]);
  expect(ids("nonesuch")).toEqual([]);
});
