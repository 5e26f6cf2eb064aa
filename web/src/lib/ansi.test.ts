import { expect, test } from "vitest";
import { after, clean, complete, plain, spans } from "./ansi";

test.each([
  ["nothing", "plain text\twith a tab", "plain text\twith a tab"],
  ["a colour stays", "\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"],
  ["moves go", "a\x1b[2J\x1b[10;20Hb\x1b[?25lc", "abc"],
  ["a colour query that ends like one goes", "\x1b[>4;2mx", "x"],
  ["a title goes", "a\x1b]0;title\x07b", "ab"],
  ["the clipboard goes", "a\x1b]52;c;b3duZWQ=\x1b\\b", "ab"],
  ["a link's text stays", "\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07", "click"],
  ["a device string goes", "a\x1bPq#0\x1b\\b", "ab"],
  ["short sequences go", "a\x1b(B\x1b7\x1bcb", "ab"],
  ["single controls go", "a\x00\x07\x08\x7fb\x9bc", "abc"],
])("clean: %s", (_, text, want) => expect(clean(text)).toBe(want));

test("an incomplete sequence is held back", () => {
  expect(complete("text\x1b[3")).toBe("text");
  expect(complete("text\x1b")).toBe("text");
  expect(complete("text\x1b]0;a title")).toBe("text");
  expect(complete("text\x1b[31m")).toBe("text\x1b[31m");
  // An endless sequence isn't held back forever.
  const endless = `\x1b]0;${"x".repeat(10_000)}`;
  expect(complete(endless)).toBe(endless);
});

test("spans have the style set before them", () => {
  expect(spans("a\x1b[1;31mb\x1b[39mc\x1b[0md", plain)).toEqual([
    { text: "a", style: {} },
    { text: "b", style: { bold: true, fg: 1 } },
    { text: "c", style: { bold: true, fg: undefined } },
    { text: "d", style: {} },
  ]);
});

test.each([
  ["\x1b[38;5;9m", 9],
  ["\x1b[38;5;196m", "rgb(255, 0, 0)"],
  ["\x1b[38;5;244m", "rgb(128, 128, 128)"],
  ["\x1b[38;2;1;2;999m", "rgb(1, 2, 255)"],
  ["\x1b[92m", 10],
  ["\x1b[38m", undefined],
])("colour %j", (text, want) => expect(after(text, plain).fg).toBe(want));
