import { expect, test } from "vitest";
import { choose, join, nameOf, parent, wrongName } from "./paths";

test("paths are joined and taken apart", () => {
  expect(join("/", "a")).toBe("/a");
  expect(join("/workspace", "a/b")).toBe("/workspace/a/b");
  expect(join("/workspace", "/tmp/a")).toBe("/tmp/a");
  expect(parent("/workspace/a")).toBe("/workspace");
  expect(parent("/workspace")).toBe("/");
  expect(nameOf("/workspace/a b")).toBe("a b");
});

test("an invalid name has a reason", () => {
  for (const name of ["", ".", "..", "a/../b", "a/"]) expect(wrongName(name), name).toBeTruthy();
  for (const name of ["a", ".hidden", "...", "a/b", "/tmp/x", "*"]) expect(wrongName(name), name).toBeUndefined();
});

const paths = ["a", "b", "c", "d"];

test("a click selects an entry, and the next click deselects it", () => {
  expect([...choose(new Set(["a"]), paths, "c")]).toEqual(["a", "c"]);
  expect([...choose(new Set(["a", "c"]), paths, "c")]).toEqual(["a"]);
});

test("a click with Shift selects or deselects a range in either direction", () => {
  expect([...choose(new Set(["b"]), paths, "d", "b")]).toEqual(["b", "c", "d"]);
  expect([...choose(new Set(["d"]), paths, "b", "d")].sort()).toEqual(["b", "c", "d"]);
  expect([...choose(new Set(paths), paths, "c", "b")]).toEqual(["a", "d"]);
});

test("after the last clicked entry is gone, Shift selects only one", () => {
  expect([...choose(new Set(), paths, "c", "gone")]).toEqual(["c"]);
});
