import { expect, test } from "vitest";
import { find, Output, textOfLine } from "./output";

function printed(output: Output): string[] {
  output.flush();
  return output.lines.map(textOfLine);
}

test("lines are the same however they arrive", () => {
  const text = "one\ntwo\r\n\nthree \x1b[31mred\x1b[0m\nlast";
  for (let size = 1; size <= text.length; size++) {
    const output = new Output();
    for (let at = 0; at < text.length; at += size) output.push("STDOUT", text.slice(at, at + size));
    expect(printed(output), `in pieces of ${size}`).toEqual(["one", "two", "", "three red", "last"]);
  }
});

test("streams stay apart within a line", () => {
  const output = new Output();
  output.push("STDOUT", "out ");
  output.push("STDERR", "err");
  output.push("STDOUT", " out\n");
  output.flush();
  expect(output.lines[0]!.parts).toEqual([
    { stderr: false, text: "out " },
    { stderr: true, text: "err" },
    { stderr: false, text: " out" },
  ]);
});

test("a carriage return begins the line anew", () => {
  const output = new Output();
  for (const text of ["10 %", "\r20 %\r", "30 %", "\r100 %\nnext"]) output.push("STDOUT", text);
  expect(printed(output)).toEqual(["100 %", "next"]);
});

test("a colour goes on in the next line", () => {
  const output = new Output();
  output.push("STDOUT", "\x1b[32mgreen\nstill\x1b[0m\nnot");
  output.flush();
  expect(output.lines.map((line) => line.style.fg)).toEqual([undefined, 2, undefined]);
});

test("only the latest is kept, and its lines are whole", () => {
  const output = new Output({ lines: 100, chars: 5_000 });
  for (let i = 0; i < 5_000; i++) {
    output.push("STDOUT", `line ${i}\n`);
    if (i % 7 === 0) output.flush();
  }
  const lines = printed(output);
  expect(lines.length).toBeLessThanOrEqual(110);
  expect(lines.at(-1)).toBe("line 4999");
  expect(lines).toEqual(lines.map((_, i) => `line ${5_000 - lines.length + i}`));
  expect(output.cut).toBe(true);
});

test("a flood that is never shown costs no lines", () => {
  const output = new Output({ chars: 10_000 });
  for (let i = 0; i < 1_000; i++) output.push("STDOUT", "x\n".repeat(1_000));
  output.push("STDOUT", "end\n");
  const lines = printed(output);
  expect(lines.length).toBeLessThan(6_000);
  expect(lines.at(-1)).toBe("end");
  expect(output.cut).toBe(true);
});

test("a line without end is broken", () => {
  const output = new Output({ lineChars: 10 });
  output.push("STDOUT", "abcdefghijklmnopqrstuvwxyz\n");
  for (const char of "abcdefghijklmno") output.push("STDOUT", char);
  expect(printed(output)).toEqual(["abcdefghij", "klmnopqrst", "uvwxyz", "abcdefghij", "klmno"]);
});

test("a line is not broken within a colour or a character", () => {
  const output = new Output({ lineChars: 12 });
  output.push("STDOUT", "abcdefghij\x1b[31mred\x1b[0m\nabcdefghijk\u{1f600}l\n");
  expect(printed(output)).toEqual(["abcdefghij", "red", "abcdefghijk", "\u{1f600}l"]);
});

test("what is missing is said where it is missing", () => {
  const output = new Output();
  output.push("STDOUT", "before");
  output.lost(7, "DELETED");
  output.push("STDOUT", "after\n");
  output.flush();
  expect(output.lines.map((line) => line.lost ?? textOfLine(line))).toEqual(["before", { bytes: 7, cause: "DELETED" }, "after"]);
});

test("searching looks through colours, in any case", () => {
  const output = new Output();
  output.push("STDOUT", "nothing\nan \x1b[31mEr\x1b[0mror\nerror");
  output.flush();
  expect(find(output.lines, "error")).toEqual([1, 2]);
  expect(find(output.lines, "")).toEqual([]);
});
