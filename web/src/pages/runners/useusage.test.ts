import { expect, test } from "vitest";
import { next } from "./useusage";

const answer = (...nodes: { id: string; usage: { cpuMs: number; memory: number | null; memoryLimit: number; at: string } | null }[]) => ({ runners: { nodes } });
const at = (second: number, cpuMs: number) => ({ cpuMs, memory: 5, memoryLimit: 10, at: `2026-11-21T00:00:0${second}Z` });

test("CPU share is known from the second response, and unseen runners are dropped", () => {
  const first = next(new Map(), answer({ id: "a", usage: at(0, 100) }, { id: "b", usage: null }));
  expect([...first.keys()]).toEqual(["a"]);
  expect(first.get("a")!.cpu.share).toBeUndefined();
  const second = next(first, answer({ id: "a", usage: at(1, 600) }));
  expect(second.get("a")).toMatchObject({ memory: 5, memoryLimit: 10, cpu: { share: 0.5 } });
  expect(next(second, answer({ id: "c", usage: at(1, 1) })).has("a")).toBe(false);
});
