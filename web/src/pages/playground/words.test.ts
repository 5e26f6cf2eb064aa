import { expect, test } from "vitest";
import { split } from "./words";

test.each([
  ["", [], false],
  ["  a\tb ", ["a", "b"], true],
  [`'a b'c "d \\"e\\" \\x" \\'`, ["a bc", `d "e" \\x`, "'"], true],
  [`'' ""`, ["", ""], true],
  ["a=1 b", ["a=1", "b"], false],
  ["a --b=1", ["a", "--b=1"], true],
  ["a $HOME", ["a", "$HOME"], false],
  ['a "$HOME"', ["a", "$HOME"], false],
  ["a '$HOME'", ["a", "$HOME"], true],
  ["a | b", ["a", "|", "b"], false],
  ["a\nb", ["a", "b"], false],
  ["a\\", ["a\\"], true],
])("%j", (text, words, plain) => expect(split(text)).toEqual({ words, plain }));

test.each(["'", '"', `a "b\\"`, "'a' 'b"])("%j has an open quote", (text) => expect(split(text)).toBeUndefined());
