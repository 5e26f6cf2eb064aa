import { expect, test } from "vitest";
import { asCurl, quoted } from "./calls";
import { begin, languageOf, pack, templateOf, unpack } from "./program";

test("a link holds the whole program", async () => {
  const program = { environment: "python", file: "é.py", text: "print('\u{1f600}')\n".repeat(50), command: "python3 é.py", stdin: "\0\n" };
  const packed = await pack(program);
  expect(packed).toMatch(/^[\w-]+$/);
  expect(packed.length).toBeLessThan(200);
  expect(await unpack(packed)).toEqual(program);
});

test("what is no program is none", async () => {
  expect(await unpack("")).toBeUndefined();
  expect(await unpack("!!")).toBeUndefined();
  expect(await unpack("AAAA")).toBeUndefined();
  expect(await unpack(await pack({ environment: "x" } as never))).toBeUndefined();
  expect(await unpack(await pack({ ...begin("c"), text: "x".repeat(3_000_000) }))).toBeUndefined();
});

test("an environment's name tells the language", () => {
  expect(templateOf("python").file).toBe("main.py");
  expect(templateOf("Python-3.12").file).toBe("main.py");
  expect(templateOf("c").file).toBe("main.c");
  expect(templateOf("basic").file).toBe("main.sh");
  expect(languageOf("a/b.mjs")).toBe("js");
});

test("the curl is a shell's, whatever the program is", () => {
  expect(quoted("it's $HOME `x`")).toBe(`'it'\\''s $HOME \`x\`'`);
  expect(asCurl(begin("python"), "http://127.0.0.1:1", false)).toContain(`"id":"'"$id"'"`);
  expect(asCurl(begin("python"), "http://127.0.0.1:1", true).match(/-H "Authorization: Bearer \$ROCKPOOL_TOKEN"/g)).toHaveLength(2);
});
