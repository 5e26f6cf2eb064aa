import { beforeEach, expect, test, vi } from "vitest";
import { back, load, opened, save } from "./draft";
import { begin } from "./presets";
import { wished } from "./playground";

const environments = [{ id: "python", image: "host" }, { id: "shell", image: "host" }];
const sample = begin(environments[0]!);
const mine = { ...sample, files: [{ name: "main.py", text: "mine" }] };
const theirs = { ...sample, files: [{ name: "main.py", text: "theirs" }] };

beforeEach(() => {
  sessionStorage.clear();
  localStorage.clear();
});

test("a draft is kept, first in this tab, then in this browser", () => {
  expect(load()).toBeUndefined();
  expect(save({ program: mine, kept: [theirs] })).toBe(true);
  expect(load()).toEqual({ program: mine, kept: [theirs] });
  sessionStorage.clear();
  expect(load()?.program).toEqual(mine);
  localStorage.setItem("rockpool.playground", "{");
  expect(load()).toBeUndefined();
});

test("what a browser doesn't keep is said", () => {
  vi.stubGlobal("localStorage", { setItem: () => expect.fail("full") });
  expect(save({ program: mine, kept: [] })).toBe(false);
  vi.unstubAllGlobals();
});

test("another program never takes the place of one's own without a way back", () => {
  const first = opened({ program: mine, kept: [] }, theirs);
  expect(first).toEqual({ program: theirs, kept: [mine] });
  expect(opened(first, theirs)).toEqual(first);
  expect(back(first)).toEqual({ program: mine, kept: [theirs] });
  expect(back(back(first))).toEqual(first);
  expect(opened({ program: sample, kept: [] }, theirs).kept).toEqual([]);
  expect(opened(undefined, theirs)).toEqual({ program: theirs, kept: [] });
});

test("an address with an environment has the draft for it, or a sample", () => {
  expect(wished(undefined, environments, "")?.program).toEqual(sample);
  expect(wished(undefined, environments, "?environment=shell")?.program.environment).toBe("shell");
  expect(wished({ program: mine, kept: [] }, environments, "?environment=python")?.program).toEqual(mine);
  expect(wished({ program: mine, kept: [] }, environments, "?environment=nonesuch")?.program).toEqual(mine);
  expect(wished({ program: mine, kept: [] }, environments, "?environment=shell")?.kept).toEqual([mine]);
});
