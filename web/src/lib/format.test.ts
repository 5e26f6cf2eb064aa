import { expect, test } from "vitest";
import { ago, between, bytes, commandText, dated, duration, lasting } from "./format";

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1 KiB"],
  [16777216, "16 MiB"],
  [1500000, "1.43 MiB"],
])("bytes %d", (n, want) => expect(bytes(n)).toBe(want));

test.each([
  [0, "0 ms"],
  [0.25, "250 µs"],
  [1.234, "1.2 ms"],
  [999, "999 ms"],
  [2000, "2 s"],
  [2345, "2.35 s"],
  [61_000, "1 min 1 s"],
  [3_600_000, "1 h"],
  [90_061_000, "1 d 1 h"],
])("duration %d", (ms, want) => expect(duration(ms)).toBe(want));

test("between uses nanoseconds", () => {
  expect(between("2026-11-21T00:00:00.999999Z", "2026-11-21T00:00:01.000499Z")).toBeCloseTo(0.5, 3);
  expect(between("2026-11-21T00:00:00Z", "2026-11-21T00:00:02.5Z")).toBe(2500);
});

test("ago", () => {
  const now = Date.parse("2026-11-21T00:10:00Z");
  expect(ago("2026-11-21T00:09:59.5Z", now)).toBe("now");
  expect(ago("2026-11-21T00:09:30Z", now)).toBe("30 s ago");
  expect(ago("2026-11-21T00:12:00Z", now)).toBe("in 2 min");
});

test("invisible characters in commands are marked, and long commands cut", () => {
  expect(commandText(" echo \u202e a\n")).toBe("echo [U+202E] a");
  expect(commandText("x".repeat(300), 80)).toBe("x".repeat(80));
});

test("dated has the day, and the year unless it is the current one", () => {
  const now = Date.parse("2026-11-21T12:00:00Z");
  expect(dated("2026-11-21T11:00:01Z", now)).toMatch(/^21 Nov, \d\d:00:01$/);
  expect(dated("2025-11-20T11:00:01Z", now)).toMatch(/^2025 20 Nov, /);
});

test("lasting", () => {
  const now = Date.parse("2026-11-21T00:10:00Z");
  expect(lasting("2026-11-21T00:09:30Z", now)).toBe("30 s");
  expect(lasting("2026-11-21T00:10:30Z", now)).toBe("0 s");
});
