import { beforeEach, expect, test, vi } from "vitest";
import { back, load, opened, save, Saver } from "./draft";
import { begin } from "./presets";
import { draftFor } from "./playground";

const environments = [{ id: "python", image: "host" }, { id: "shell", image: "host" }];
const sample = begin(environments[0]!);
const mine = { ...sample, files: [{ name: "main.py", text: "mine" }] };
const theirs = { ...sample, files: [{ name: "main.py", text: "theirs" }] };

beforeEach(() => {
  sessionStorage.clear();
  localStorage.clear();
});

test("the tab's draft takes precedence over the browser's", () => {
  expect(load()).toBeUndefined();
  expect(save({ program: mine, kept: [theirs] })).toBe(true);
  expect(load()).toEqual({ program: mine, kept: [theirs] });
  sessionStorage.clear();
  expect(load()?.program).toEqual(mine);
  localStorage.setItem("rockpool.playground", "{");
  expect(load()).toBeUndefined();
});

test("a failed save is reported", () => {
  vi.stubGlobal("localStorage", { setItem: () => expect.fail("full") });
  expect(save({ program: mine, kept: [] })).toBe(false);
  vi.unstubAllGlobals();
});

test("a draft over 1,000,000 characters isn't stored", () => {
  const sized = (size: number) => ({ program: { ...sample, stdin: "x".repeat(size) }, kept: [] });
  expect(save(sized(1_000_000))).toBe(false);
  expect(load()).toBeUndefined();
  expect(save(sized(990_000))).toBe(true);
});

test("only the latest draft is stored, after a pause", () => {
  vi.useFakeTimers();
  const said: boolean[] = [];
  const saver = new Saver((kept) => said.push(kept));
  saver.save({ program: mine, kept: [] });
  vi.advanceTimersByTime(299);
  saver.save({ program: theirs, kept: [] });
  vi.advanceTimersByTime(299);
  expect(load()).toBeUndefined();
  vi.advanceTimersByTime(1);
  expect(load()?.program).toEqual(theirs);
  saver.save({ program: mine, kept: [] });
  saver.flush();
  expect(load()?.program).toEqual(mine);
  localStorage.clear();
  sessionStorage.clear();
  saver.flush();
  vi.runAllTimers();
  expect([said, load()]).toEqual([[true, true], undefined]);
  vi.useRealTimers();
});

test("a replaced program can be restored, unless it is an unchanged sample", () => {
  const first = opened({ program: mine, kept: [] }, theirs);
  expect(first).toEqual({ program: theirs, kept: [mine] });
  expect(opened(first, theirs)).toEqual(first);
  expect(back(first)).toEqual({ program: mine, kept: [theirs] });
  expect(back(back(first))).toEqual(first);
  expect(opened({ program: sample, kept: [] }, theirs).kept).toEqual([]);
  expect(opened(undefined, theirs)).toEqual({ program: theirs, kept: [] });
});

test("an address with an environment loads its draft or a sample", () => {
  expect(draftFor(undefined, environments, "")?.program).toEqual(sample);
  expect(draftFor(undefined, environments, "?environment=shell")?.program.environment).toBe("shell");
  expect(draftFor({ program: mine, kept: [] }, environments, "?environment=python")?.program).toEqual(mine);
  expect(draftFor({ program: mine, kept: [] }, environments, "?environment=nonesuch")?.program).toEqual(mine);
  expect(draftFor({ program: mine, kept: [] }, environments, "?environment=shell")?.kept).toEqual([mine]);
});
