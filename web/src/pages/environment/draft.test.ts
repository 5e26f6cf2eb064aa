import { expect, test } from "vitest";
import { blank, changed, consequence, draftOf, inputOf, type Parts } from "./draft";

const pool = { idle: 3, starting: 1, claimed: 2, size: 4 };

test.each([
  [[], 4, ""],
  [["memoryMiB"] as const, 4, "4 idle runners will be replaced by new ones. 2 claimed runners aren't affected."],
  [["poolSize", "image"] as const, 9, "4 idle runners will be replaced by new ones. 2 claimed runners aren't affected."],
  [["poolSize"] as const, 2, "1 idle runner will be removed. 2 claimed runners aren't affected."],
  [["poolSize"] as const, 6, "2 more runners will be started. 2 claimed runners aren't affected."],
  [["shared"] as const, 4, "No runner is started or removed. 2 claimed runners aren't affected."],
  [["poolSize"] as const, 3, "No runner is started or removed. 2 claimed runners aren't affected."],
])("the consequence of changing %j", (fields, size, want) => expect(consequence(fields, size, pool)).toBe(want));

test("the input has all values of the form", () => {
  const draft = { ...blank, id: " x ", exposedPorts: "80, 443 8080", variables: [{ name: "A", value: " b " }] };
  expect(inputOf(draft, 3)).toMatchObject({ id: "x", ifRevision: 3, poolSize: 2, network: { exposedPorts: [80, 443, 8080] }, variables: [{ name: "A", value: " b " }] });
});

test("an interpreter is loaded with its modules, or none", () => {
  expect(inputOf({ ...blank, interpreter: "PYTHON", modules: " numpy,os.path json" }, 0)).toMatchObject({ warm: { interpreter: "PYTHON", modules: ["numpy", "os.path", "json"] } });
  expect(inputOf({ ...blank, modules: "numpy" }, 0)).toMatchObject({ warm: { interpreter: "NONE", modules: [] } });
});

test("a copy keeps the isolation tier and the network settings", () => {
  const parts: Parts = {
    id: "a",
    tenant: "course-1",
    shared: true,
    revision: 4,
    image: "host",
    poolSize: 1,
    resources: { cpuMHz: 100, memoryMiB: 64, processes: 16, workspaceMiB: 8 },
    network: { access: true, exposedPorts: [80], allow: ["151.101.0.0/16", "2a04:4e42::/32"], allowNames: ["*.pypi.org"], bandwidthMbit: 5 },
    isolation: "NAMESPACES",
    runtime: "runc",
    variables: [],
    warm: { interpreter: "PYTHON", modules: ["numpy", "os.path"] },
    defaultTimeLimit: 60,
    outputLimit: 1024,
  };
  const { revision: ifRevision, ...rest } = parts;
  expect(inputOf({ ...draftOf(parts), id: "b" }, ifRevision)).toEqual({ ...rest, id: "b", tenant: null, ifRevision });
});

test("a new environment belongs to the chosen tenant, or to the caller's", () => {
  expect([inputOf({ ...blank, tenant: "a" }, 0), inputOf(blank, 0), inputOf({ ...blank, tenant: "a" }, 1)]).toMatchObject([{ tenant: "a" }, { tenant: null }, { tenant: null }]);
});

test.each([
  ["memoryMiB", "", "resources.memoryMiB"],
  ["poolSize", "1.5", "poolSize"],
  ["exposedPorts", "80, http", "network.exposedPorts"],
])("%s with the value %j is rejected as a number", (key, value, field) => {
  expect(inputOf({ ...blank, [key]: value }, 0)).toEqual({ field, message: "must be a whole number" });
});

test("cores and MiB can have fractions", () => {
  expect(inputOf({ ...blank, cpuMHz: "one" }, 0)).toEqual({ field: "resources.cpuMHz", message: "must be a number" });
  expect(inputOf({ ...blank, outputLimit: "much" }, 0)).toEqual({ field: "outputLimit", message: "must be a number" });
});

test("changed names the changed fields", () => {
  expect(changed(blank, { ...blank })).toEqual([]);
  expect(changed(blank, { ...blank, image: "x", variables: [{ name: "A", value: "" }] })).toEqual(["image", "variables"]);
});
