import { expect, test } from "vitest";
import { steps } from "./waterfall";

const at = (ms: number) => `2026-11-21T00:00:0${(ms / 1000).toFixed(3)}Z`;

test("the steps follow one another", () => {
  expect(steps({ queuedAt: at(0), startedAt: at(10), firstOutputAt: at(30), finishedAt: at(100) }).map(({ from, took }) => [Math.round(from), Math.round(took)])).toEqual([
    [0, 10],
    [10, 20],
    [30, 70],
  ]);
});

test("a phase that didn't happen has no step", () => {
  expect(steps({ queuedAt: at(0), startedAt: null, firstOutputAt: null, finishedAt: null })).toEqual([]);
  expect(steps({ queuedAt: at(0), startedAt: at(5), firstOutputAt: null, finishedAt: at(9) }).map((step) => step.name)).toEqual(["Queued", "Start to end"]);
  expect(steps({ queuedAt: at(0), startedAt: null, firstOutputAt: null, finishedAt: at(9) }).map((step) => step.name)).toEqual(["Queued"]);
});
