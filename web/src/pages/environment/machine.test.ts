import { expect, test } from "vitest";
import { blank } from "./draft";
import { cpu, misfits, scaled, unknownMachine, unscaled, type Machine } from "./machine";

const known: Machine = { kind: "local", coreMHz: 2500, largestRunner: { cpuMHz: 5000, memoryMiB: 2000, processes: 1000, workspaceMiB: 2000 }, hostInterpreters: [] };

test.each([
  ["2500", "1"],
  ["2000", "0.8"],
  ["10", "0.004"],
  ["3333", "1.333"],
  ["many", "many"],
  ["", ""],
])("%s MHz are %s cores", (mhz, cores) => expect(scaled(mhz, 2500)).toBe(cores));

test.each([
  ["1", "2500"],
  ["0.5", "1250"],
  [" 1. ", "2500"],
  ["-1", "-2500"],
  ["1,5", "1,5"],
  ["", ""],
])("%s cores are %s MHz", (cores, mhz) => expect(unscaled(cores, 2500)).toBe(mhz));

test("CPU in words", () => expect([cpu("2500", known), cpu("1250", known), cpu("1250", unknownMachine)]).toEqual(["1 core", "0.5 cores", "1250 MHz"]));

test("a resource above the limit is refused at its field", () => {
  expect(misfits({ ...blank, cpuMHz: "5000", memoryMiB: "2000", processes: "1000", workspaceMiB: "2000" }, known)).toEqual([]);
  const all = misfits({ ...blank, cpuMHz: "5001", memoryMiB: "2001", processes: "1001", workspaceMiB: "2001" }, known);
  expect(all.map(({ field, message }) => [field, message.split(":")[0]])).toEqual([
    ["resources.cpuMHz", "must be at most 2 cores"],
    ["resources.memoryMiB", "must be at most 2000 MiB"],
    ["resources.processes", "must be at most 1000 processes"],
    ["resources.workspaceMiB", "must be at most 2000 MiB"],
  ]);
  expect(misfits({ ...blank, memoryMiB: "999999" }, unknownMachine)).toEqual([]);
});
