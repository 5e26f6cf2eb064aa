import { expect, test } from "vitest";
import { Echoes } from "./echoes";

test("a reported text that comes back late isn't set again", () => {
  const echoes = new Echoes();
  for (const text of ["", "e", "ec"]) echoes.report(text);
  expect(echoes.has("")).toBe(true);
  expect(echoes.has("ec")).toBe(true);
  expect(echoes.has("e")).toBe(false);
});

test("texts set by others are no echoes", () => {
  const echoes = new Echoes();
  echoes.report("mine");
  expect(echoes.has("theirs")).toBe(false);
  echoes.clear();
  expect(echoes.has("mine")).toBe(false);
});
