import { expect, test } from "vitest";
import { asCurl, quoted, runVariables } from "./calls";
import { begin } from "./presets";
import { commandOf, freshName, languageOf, mainOf, problemOf, rename, shownOf, withMain, type Program } from "./program";

const python = begin({ id: "python", image: "host" });
const java = begin({ id: "java", image: "host" });
const of = (change: Partial<Program>): Program => ({ ...python, ...change });

test.each([
  ["python3 main.py", "", ["python3", "main.py"]],
  ["python3 main.py", `a 'b c' $(id) "*"`, ["python3", "main.py", "a", "b c", "$(id)", "*"]],
  ["cc *.c && ./a.out", "", ["sh", "-c", "cc *.c && ./a.out"]],
  ["cc *.c && ./a.out", "; 'rm x'", ["sh", "-c", 'cc *.c && ./a.out "$@"', "sh", ";", "rm x"]],
  ["ls | awk '{print $1}'", "a", ["sh", "-c", `ls | awk '{print $1}' "$@"`, "sh", "a"]],
  ["exit", "3", ["sh", "-c", 'exit "$@"', "sh", "3"]],
  ['cat "$@" | sort', "a", ["sh", "-c", 'cat "$@" | sort', "sh", "a"]],
])("the command %j with the arguments %j", (command, args, want) => expect(commandOf(of({ command, args }))).toEqual(want));

test.each([
  ["python3 main.py", "'a b'", undefined],
  [" cc *.c && ./a.out ", "", "cc *.c && ./a.out"],
  ["cc *.c && ./a.out", " 'x y' $z ", "cc *.c && ./a.out 'x y' $z"],
  ["a | b", "\u0001", undefined],
  ["a | b", "ä".repeat(2046), undefined],
  ["a\n| b", "ä".repeat(2044), `a\n| b ${"ä".repeat(2044)}`],
])("the command %j with the arguments %j is shown as it was typed", (command, args, want) => expect(shownOf(of({ command, args }))).toBe(want));

test("a shell command is passed as it was typed", () => {
  expect(runVariables(of({ command: " a | b " })).input).toMatchObject({ shell: "a | b" });
  expect(runVariables(python).input).toMatchObject({ command: ["python3", "main.py"] });
  expect(runVariables(of({ command: "a | b", args: "c" })).input).toMatchObject({ command: ["sh", "-c", 'a | b "$@"', "sh", "c"], commandLine: "a | b c" });
});

test("a program that can't run has a reason", () => {
  expect(problemOf(python)).toBeUndefined();
  expect(problemOf(of({ args: "'" }))).toBe("A quote in the arguments has no end");
  const closed = "Arguments can't be added at the end of this command: write \"$@\" where they belong";
  expect(["a;", "a &", "a |", "a &&"].map((command) => problemOf(of({ command, args: "b" })))).toEqual([closed, closed, closed, closed]);
  expect(problemOf(of({ command: "a &" }))).toBeUndefined();
  expect(problemOf(of({ command: 'a "$@" &', args: "b" }))).toBeUndefined();
  expect(problemOf(of({ command: " " }))).toMatch(/^Enter the command/);
  expect(problemOf(of({ files: [{ name: "a", text: "" }, { name: "a ", text: "" }] }))).toBe("Two files have the name a");
  expect(problemOf(of({ files: [{ name: " ", text: "" }] }))).toBe("A file needs a name");
});

test("the main file is the one that the command names", () => {
  const two = of({ files: [...python.files, { name: "util.py", text: "" }] });
  expect(mainOf(two)).toBe(0);
  expect(withMain(two, 1).command).toBe("python3 util.py");
  expect(rename(two, 0, "start.py", "main.py").command).toBe("python3 start.py");
  expect(rename(two, 1, "more.py", "util.py").command).toBe("python3 main.py");
  expect(rename(java, 0, "Start.java", "Main.java").command).toBe("javac Start.java && java Start");
  expect(mainOf(of({ command: "make" }))).toBeUndefined();
  expect(freshName([{ name: "main.py", text: "" }, { name: "file3.py", text: "" }], "main.py")).toBe("file4.py");
});

test("after an invalid name the command follows the next valid one", () => {
  const two = of({ files: [{ name: "util.py", text: "" }, ...python.files] });
  for (const wrong of ["", "util.py"]) {
    const between = rename(two, 1, wrong, "main.py");
    expect(between).toMatchObject({ command: "python3 main.py", files: [{ name: "util.py" }, { name: wrong }] });
    expect(rename(between, 1, "start.py", "main.py").command).toBe("python3 start.py");
  }
});

test("the file's ending determines the language", () => expect(["a/b.mjs", "x.HPP", "y.go", "none"].map(languageOf)).toEqual(["js", "c", "go", "none"]));

test("the curl command is quoted for a shell", () => {
  expect(quoted("it's $HOME `x`")).toBe(`'it'\\''s $HOME \`x\`'`);
  expect(asCurl(python, "http://127.0.0.1:1", false)).toContain(`"id":"'"$id"'"`);
  expect(asCurl(python, "http://127.0.0.1:1", false)).toContain(`waitFor: 45) { state outcome`);
  expect(asCurl(python, "http://127.0.0.1:1", false)).toMatch(/while result=\$\(.*\)\n.* "FINISHED"' >\/dev\/null; do :; done\nprintf .*"\$result"$/);
  expect(asCurl(python, "http://127.0.0.1:1", true).match(/-H "Authorization: Bearer \$ROCKPOOL_TOKEN"/g)).toHaveLength(2);
});
