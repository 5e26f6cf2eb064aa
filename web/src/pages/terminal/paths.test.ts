import { expect, test } from "vitest";
import { choose, deletesAll, join, nameOf, parent, wrongName } from "./paths";

test("paths are joined and taken apart", () => {
  expect(join("/", "a")).toBe("/a");
  expect(join("/workspace", "a/b")).toBe("/workspace/a/b");
  expect(join("/workspace", "/tmp/a")).toBe("/tmp/a");
  expect(parent("/workspace/a")).toBe("/workspace");
  expect(parent("/workspace")).toBe("/");
  expect(nameOf("/workspace/a b")).toBe("a b");
});

test("a name that can't be one says why", () => {
  for (const name of ["", ".", "..", "a/../b", "a/"]) expect(wrongName(name), name).toBeTruthy();
  for (const name of ["a", ".hidden", "...", "a/b", "/tmp/x", "*"]) expect(wrongName(name), name).toBeUndefined();
});

const paths = ["a", "b", "c", "d"];

test("a click chooses one, and the next click on it takes it back", () => {
  expect([...choose(new Set(["a"]), paths, "c")]).toEqual(["a", "c"]);
  expect([...choose(new Set(["a", "c"]), paths, "c")]).toEqual(["a"]);
});

test("a click with Shift chooses all from the last click on, in either direction, or takes them back", () => {
  expect([...choose(new Set(["b"]), paths, "d", "b")]).toEqual(["b", "c", "d"]);
  expect([...choose(new Set(["d"]), paths, "b", "d")].sort()).toEqual(["b", "c", "d"]);
  expect([...choose(new Set(paths), paths, "c", "b")]).toEqual(["a", "d"]);
});

test("where the last click was on what is gone, only one is chosen", () => {
  expect([...choose(new Set(), paths, "c", "gone")]).toEqual(["c"]);
});

test("a file with the name * is never deleted by its path", () => {
  expect(deletesAll("/workspace/*")).toBe(true);
  expect(deletesAll("/workspace/a*")).toBe(false);
});
