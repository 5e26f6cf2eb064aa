import { expect, test } from "vitest";
import { describeCaller, describeNeed, meets, needs, owns, roles, type Caller, type Needed, type Role } from "./access";

const caller = (role: Role | null, tenant: string | null = null): Caller => ({ kind: role ? "TOKEN" : "GRANT", name: "n", role, tenant });

// The roles with each access, for callers of all tenants and of one.
const table: Record<Needed, [all: Role[], one: Role[]]> = {
  use: [["CLIENT", "OPERATOR", "ADMIN"], ["CLIENT", "OPERATOR", "ADMIN"]],
  change: [["OPERATOR", "ADMIN"], ["OPERATOR", "ADMIN"]],
  cluster: [["OBSERVER", "CLIENT", "OPERATOR", "ADMIN"], []],
  drain: [["OPERATOR", "ADMIN"], []],
  tokens: [["ADMIN"], ["ADMIN"]],
  audit: [["ADMIN"], ["ADMIN"]],
  tenants: [["ADMIN"], []],
};

test.each(Object.entries(table))("%s", (need, [all, one]) => {
  const which = (tenant: string | null) => roles.map(({ role }) => role).filter((role) => meets(caller(role, tenant), needs[need as Needed]));
  expect([which(null), which("a")]).toEqual([all, one]);
});

test("an unknown caller and a grant have no access", () => {
  for (const need of Object.values(needs)) expect([meets(undefined, need), meets(caller(null), need)]).toEqual([false, false]);
});

test("a caller doesn't own another tenant's objects", () => {
  expect([owns(undefined, "a"), owns(caller("ADMIN"), "a"), owns(caller("ADMIN", "a"), "a"), owns(caller("ADMIN", "b"), "a")]).toEqual([false, true, true, false]);
});

test("in words", () => {
  expect(describeNeed(needs.tenants)).toBe("the role ADMIN and a token for all tenants");
  expect(describeNeed(needs.use)).toBe("the role CLIENT");
  expect([describeCaller(caller("CLIENT", "a")), describeCaller(caller("ADMIN"))]).toEqual(["CLIENT of tenant a", "ADMIN for all tenants"]);
});
