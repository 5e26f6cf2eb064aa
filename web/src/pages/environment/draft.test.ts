import { expect, test } from "vitest";
import { blank, changed, consequence, inputOf } from "./draft";

const pool = { idle: 3, starting: 1, claimed: 2, size: 4 };

test.each([
  [[], 4, ""],
  [["memoryMiB"] as const, 4, "4 idle runners will be replaced by new ones. 2 claimed ones stay untouched."],
  [["poolSize", "image"] as const, 9, "4 idle runners will be replaced by new ones. 2 claimed ones stay untouched."],
  [["poolSize"] as const, 2, "1 idle runner will be removed. 2 claimed ones stay untouched."],
  [["poolSize"] as const, 6, "2 more will be started. 2 claimed ones stay untouched."],
  [["poolSize"] as const, 3, "No runner is started or removed. 2 claimed ones stay untouched."],
])("what a change of %j does", (fields, size, want) => expect(consequence(fields, size, pool)).toBe(want));

test("an input has what the form has", () => {
  const draft = { ...blank, id: " x ", exposedPorts: "80, 443 8080", variables: [{ name: "A", value: " b " }] };
  expect(inputOf(draft, 3)).toMatchObject({ id: "x", ifRevision: 3, poolSize: 2, network: { exposedPorts: [80, 443, 8080] }, variables: [{ name: "A", value: " b " }] });
});

test.each([
  ["memoryMiB", "", "resources.memoryMiB"],
  ["poolSize", "1.5", "poolSize"],
  ["exposedPorts", "80, http", "network.exposedPorts"],
])("%s that is %j is no number", (key, value, field) => {
  expect(inputOf({ ...blank, [key]: value }, 0)).toEqual({ field, message: "must be a whole number" });
});

test("what was changed", () => {
  expect(changed(blank, { ...blank })).toEqual([]);
  expect(changed(blank, { ...blank, image: "x", variables: [{ name: "A", value: "" }] })).toEqual(["image", "variables"]);
});
