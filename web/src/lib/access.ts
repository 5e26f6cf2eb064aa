import { graphql, type ResultOf } from "./graphql";

export const CallerFragment = graphql(`
  fragment CallerParts on Caller {
    kind
    name
    tenant
    role
  }
`);
export type Caller = ResultOf<typeof CallerFragment>;
export type Role = NonNullable<Caller["role"]>;

/** roles lists the roles from the lowest to the highest. Each includes the rights of those before it. */
export const roles: readonly { role: Role; may: string }[] = [
  { role: "OBSERVER", may: "read everything of its tenant" },
  { role: "CLIENT", may: "also claim runners, run programs and share executions" },
  { role: "OPERATOR", may: "also create, change and delete environments" },
  { role: "ADMIN", may: "also manage tokens and, with a token for all tenants, tenants" },
];

/** Need is the access that a page or a button requires. */
export interface Need {
  role: Role;
  /** Whether the caller must act for all tenants. */
  allTenants?: boolean;
}

/** needs maps each feature of the dashboard to its Need. It only hides controls: the server enforces access. */
export const needs = {
  /** Claim runners; run programs, write their stdin, signal, cancel and share them. */
  use: { role: "CLIENT" },
  /** Create, change and delete environments. */
  change: { role: "OPERATOR" },
  /** See the cluster's scheduler and capacity. */
  cluster: { role: "OBSERVER", allTenants: true },
  /** Drain the cluster and end the drain. */
  drain: { role: "OPERATOR", allTenants: true },
  tokens: { role: "ADMIN" },
  /** Read the audit log. */
  audit: { role: "ADMIN" },
  /** Create, change and delete tenants. */
  tenants: { role: "ADMIN", allTenants: true },
} satisfies Record<string, Need>;
export type Needed = keyof typeof needs;

/** rank returns a role's place among the roles; a higher one has more rights. */
const rank = (role: Role) => roles.findIndex((one) => one.role === role);

/** meets reports whether a caller has the access. An unknown caller has none. */
export function meets(caller: Caller | undefined, need: Need): boolean {
  if (!caller?.role || rank(caller.role) < rank(need.role)) return false;
  return !need.allTenants || caller.tenant === null;
}

/**
 * owns reports whether the caller may change objects of a tenant. Sharing an environment doesn't change its owner.
 */
export function owns(caller: Caller | undefined, tenant: string): boolean {
  return caller !== undefined && (caller.tenant === null || caller.tenant === tenant);
}

/** describeNeed describes a Need: "the role ADMIN and a token for all tenants". */
export function describeNeed(need: Need): string {
  return `the role ${need.role}${need.allTenants ? " and a token for all tenants" : ""}`;
}

/** describeCaller describes a caller's access: "CLIENT of tenant a". */
export function describeCaller({ role, tenant }: Pick<Caller, "role" | "tenant">): string {
  return `${role ?? "a grant"} ${tenant === null ? "for all tenants" : `of tenant ${tenant}`}`;
}
