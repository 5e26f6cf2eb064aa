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
  ["exit 3", ["exit", "3"], false],
  [". ./a", [".", "./a"], false],
  ["ulimit -a", ["ulimit", "-a"], false],
  ["echo exit", ["echo", "exit"], true],
])("%j", (text, words, plain) => expect(split(text)).toMatchObject({ words, plain }));

test.each(["'", '"', `a "b\\"`, "'a' 'b"])("%j has an open quote", (text) => expect(split(text)).toBeUndefined());

test.each([
  ['a "$@"', true],
  ["a $1; b", true],
  ['"x ${1:-y} ${#}"', true],
  ["a $#", true],
  ["awk '{print $1}'", false],
  ["echo '$@' | cat", false],
  ["a \\$1", false],
  ['a "\\$1"', false],
  ["echo ${HOME} $x", false],
])("%j takes arguments: %j", (text, takesArguments) => expect(split(text)?.takesArguments).toBe(takesArguments));

test.each([
  ["a;", true],
  ["a & ", true],
  ["a |", true],
  ["a &&", true],
  ["(a)", true],
  ["(a $(b))", true],
  ["a $(b; (c))", false],
  ["a >", true],
  ["for x in 1; do a; done", true],
  ["if a; then { b; } fi", true],
  ["a # b", true],
  ["a; b", false],
  ["a \\;", false],
  ["a ';'", false],
  ["x=1 echo done", false],
  ["a '#' b#", false],
])("%j is closed to arguments: %j", (text, closed) => expect(split(text)?.closed).toBe(closed));
