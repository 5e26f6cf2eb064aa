import { expect, test } from "vitest";
import { begin } from "./presets";
import { linkTo, longest, pack, unpack } from "./programlink";

const c = begin({ id: "c", image: "host" });

test("a link holds the whole program", async () => {
  const program = { environment: "python", files: [{ name: "é.py", text: "print('\u{1f600}')\n".repeat(50) }, { name: "b", text: "" }], command: "python3 é.py", args: "'a b'", stdin: "\0\n" };
  const packed = await pack(program);
  expect(packed).toMatch(/^[\w-]+$/);
  expect(packed.length).toBeLessThan(300);
  expect(await unpack(packed)).toEqual(program);
});

test("a link of an earlier version has one file", async () => {
  const old = { environment: "python", file: "a.py", text: "1", command: "python3 a.py", stdin: "" };
  expect(await unpack(await pack(old as never))).toEqual({ environment: "python", files: [{ name: "a.py", text: "1" }], command: "python3 a.py", args: "", stdin: "" });
});

test("invalid data is no program", async () => {
  expect(await unpack("")).toBeUndefined();
  expect(await unpack("!!")).toBeUndefined();
  expect(await unpack("AAAA")).toBeUndefined();
  expect(await unpack(await pack({ environment: "x" } as never))).toBeUndefined();
  expect(await unpack(await pack({ ...c, files: [] }))).toBeUndefined();
  expect(await unpack(await pack({ ...c, stdin: "x".repeat(3_000_000) }))).toBeUndefined();
});

test("a program that doesn't compress is too large for a link", async () => {
  const text = Array.from({ length: 8_000 }, (_, n) => Math.sin(n).toString(36)).join("");
  expect((await linkTo({ ...c, stdin: text }, "http://127.0.0.1")).length).toBeGreaterThan(longest);
});
