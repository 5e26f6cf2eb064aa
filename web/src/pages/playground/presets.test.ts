import { expect, test } from "vitest";
import { begin, presets, presetsFor, untouched } from "./presets";
import { mainOf } from "./program";

const names = (id: string, image = "host") => presetsFor({ id, image }).map(({ name }) => name);

test.each([
  ["python", "host", ["Python", "Shell"]],
  ["10", "docker.io/library/python:3.12-slim", ["Python", "Shell"]],
  ["Python-3.12", "host", ["Python", "Shell"]],
  ["c", "host", ["C", "C++", "Shell"]],
  ["javascript", "host", ["JavaScript", "Shell"]],
  ["exam", "eclipse-temurin:21-jdk", ["Java", "Shell"]],
  ["go1.22", "host", ["Go", "Shell"]],
  ["shell", "host", ["Shell"]],
])("%s with %s has %j", (id, image, want) => expect(names(id, image)).toEqual(want));

test("an unknown environment offers all samples", () => expect(names("10")).toHaveLength(presets.length));

test.each(presets.map((preset) => [preset.name, preset] as const))("%s is untouched until it is edited", (_, preset) => {
  const program = begin({ id: "x", image: "host" }, preset);
  expect(untouched(program)).toBe(true);
  expect(untouched({ ...program, stdin: "in", args: "a" })).toBe(true);
  expect(untouched({ ...program, command: "true" })).toBe(false);
  expect(untouched({ ...program, files: [...program.files, { name: "b", text: "" }] })).toBe(false);
  expect(preset.command.includes("*") || mainOf(program) === 0).toBe(true);
});
