import { expect, test } from "vitest";
import { blank } from "./draft";
import { unknownMachine } from "./machine";
import { lacking, languageNamed, languageOf, withLanguage } from "./presets";

const known = { ...unknownMachine, kind: "local", hostInterpreters: ["python3", "sh"] };

test.each([
  ["python:3.12", "NONE", "Python"],
  ["registry.example.org:5000/course/golang@sha256:abc", "NONE", "Go"],
  ["host", "PYTHON", "Python"],
  ["host", "NONE", ""],
  ["file:node.tar", "NONE", ""],
] as const)("%s with %s is for %s", (image, interpreter, want) => expect(languageOf({ ...blank, image, interpreter })).toBe(want));

test("the interpreter is loaded only where that is possible", () => {
  const python = languageNamed("Python")!;
  expect(withLanguage(blank, python, known).interpreter).toBe("PYTHON");
  for (const [draft, machine] of [[{ ...blank, isolation: "GVISOR" }, known], [{ ...blank, runtime: "runc" }, known], [blank, { ...known, kind: "nomad" }], [blank, unknownMachine]] as const) {
    expect(withLanguage(draft, python, machine).interpreter).toBe("NONE");
  }
  expect(withLanguage(blank, python, unknownMachine).image).toBe("python:3.13-slim");
});

test("lacking applies only to the image host and reported interpreters", () => {
  const java = languageNamed("Java");
  expect(lacking(blank, java, known)).toEqual(["java", "javac"]);
  expect(lacking({ ...blank, image: "java:1" }, java, known)).toEqual([]);
  expect(lacking(blank, java, unknownMachine)).toEqual([]);
  expect(lacking({ ...blank, interpreter: "PYTHON" }, undefined, { ...known, hostInterpreters: ["sh"] })).toEqual(["python3"]);
});
