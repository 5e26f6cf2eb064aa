import { expect, test } from "vitest";
import { asShown, rangeHash, readRange, Rows, textOfLine, type LinePage, type LogLine } from "./loglines";

function line(number: number, change: Partial<LogLine> = {}): LogLine {
  return { number, stream: "STDOUT", text: `line ${number}`, truncated: false, open: false, at: "2026-11-27T00:00:00Z", lostBytes: 0, lostCause: null, ...change };
}

function page(before: number, lines: LogLine[], total = before + lines.length): LinePage {
  return { before, lines, total, counted: true, more: false, next: null, cursor: "c" };
}

test("rows can arrive in any order, and missing ones are found", () => {
  const rows = new Rows();
  rows.put(page(998, [line(999), line(1_000)]));
  expect([rows.total, rows.get(998)?.number, rows.get(0)]).toEqual([1_000, 999, undefined]);
  expect([rows.missing(0, 40), rows.missing(998, 5_000), rows.missing(990, 1_000)]).toEqual([0, undefined, 990]);
  rows.put(page(990, [line(991)], 1_000));
  expect(rows.missing(990, 1_000)).toBe(991);
});

test("an open line is missing again after more output", () => {
  const rows = new Rows();
  rows.put(page(0, [line(1), line(2, { open: true })]));
  expect(rows.missing(0, 2)).toBeUndefined();
  rows.outdate();
  expect(rows.missing(0, 2)).toBe(1);
  rows.put(page(1, [line(2)]));
  expect(rows.missing(0, 2)).toBeUndefined();
});

test("distant rows are dropped", () => {
  const rows = new Rows();
  for (let at = 0; at < 10_000; at += 100) {
    rows.put(page(at, Array.from({ length: 100 }, (_, i) => line(at + i + 1)), 10_000));
    rows.trim(at, at + 100);
  }
  expect([rows.get(0), rows.get(9_950)?.number, rows.total]).toEqual([undefined, 9_951, 10_000]);
});

test("a line shows as a terminal would show it", () => {
  const text = (change: Partial<LogLine>) => textOfLine(asShown(line(1, change)));
  expect(text({ text: "10%\r20%\rdone" })).toBe("done");
  expect(text({ text: "open\r" })).toBe("open");
  expect(text({ text: "\x1b]0;title\x07\x1b[31mred\x1b[0m\x1b[2J" })).toBe("red");
  expect(asShown(line(1, { stream: null, text: "", lostBytes: 7, lostCause: "DAMAGED" })).lost).toEqual({ bytes: 7, cause: "DAMAGED" });
  expect(asShown(line(1, { stream: "STDERR" })).stderr).toBe(true);
  expect([true, false].map((open) => text({ text: "red \x1b[3", open }))).toEqual(["red ", "red 3"]); // of an open line the rest is to come
});

test("a colour continues in the next line, also across pages", () => {
  const rows = new Rows();
  const lines = [line(1, { text: "\x1b[31mred" }), line(2), line(3, { text: "\x1b[32m\rgreen\x1b[0m" }), line(4)];
  const colours = () => lines.map((_, row) => asShown(lines[row]!, rows.style(row)).style.fg);
  rows.put(page(0, lines));
  expect(colours()).toEqual([undefined, 1, 2, undefined]);
  rows.put(page(1, lines.slice(1)));
  expect(colours()).toEqual([undefined, 1, 2, undefined]);
  rows.trim(1_000_002, 1_000_004, 3);
  rows.put(page(0, lines.slice(0, 1)));
  rows.put(page(1, lines.slice(1)));
  expect(colours()).toEqual([undefined, 1, 2, undefined]);
});

test("a fragment marks one line or a range", () => {
  expect(["#L120", "#L120-L140", "#L140-L120", "#L0", "#L", "#L1-", "", "#t=1"].map(readRange)).toEqual([
    { from: 120, to: 120 },
    { from: 120, to: 140 },
    { from: 120, to: 140 },
    undefined,
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
  expect([rangeHash({ from: 1, to: 1 }), rangeHash({ from: 1, to: 3 })]).toEqual(["#L1", "#L1-L3"]);
});
