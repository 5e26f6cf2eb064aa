import { expect, test } from "vitest";
import { draftOf, inputOf, quotas, type Quotas } from "./quotas";

const unbounded = Object.fromEntries(quotas.map(({ name }) => [name, null])) as Quotas;
const tenant = { id: "a", weight: 3, createdAt: null, quotas: { ...unbounded, runners: 0, outputBytesPerDay: 1_125_899_906_842_624 } };

test("the form keeps a tenant unchanged: 0 is a limit, empty is none", () => {
  const { id, weight, quotas: stored } = tenant;
  expect(inputOf(draftOf(tenant))).toEqual({ id, weight, quotas: stored });
  expect(draftOf(tenant).quotas).toMatchObject({ runners: "0", waiting: "" });
  expect(inputOf({ ...draftOf(undefined), id: " b " })).toEqual({ id: "b", weight: 1, quotas: unbounded });
});

test.each([
  ["weight", { weight: "" }],
  ["weight", { weight: "1.5" }],
  ["quotas.runners", { quotas: { ...draftOf(tenant).quotas, runners: "many" } }],
  ["quotas.waiting", { quotas: { ...draftOf(tenant).quotas, waiting: "-1" } }],
])("%s must be a whole number", (field, change) => {
  expect(inputOf({ ...draftOf(tenant), ...change })).toEqual({ field, message: "must be a whole number" });
});

test("each quota is shown with its unit", () => {
  expect(quotas.map(({ name, shown, per }) => [name, [shown(3600), per].filter(Boolean).join(" ")])).toEqual([
    ["runners", "3,600"],
    ["waiting", "3,600"],
    ["executions", "3,600"],
    ["claimsPerMinute", "3,600 a minute"],
    ["cpuSecondsPerDay", "1 h a day"],
    ["outputBytesPerDay", "3.52 KiB a day"],
    ["subscriptions", "3,600"],
    ["poolRunners", "3,600"],
    ["memoryMiB", "3.52 GiB"],
    ["cpuMHz", "3,600 MHz"],
  ]);
});
