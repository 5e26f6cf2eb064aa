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

/** The roles, the lowest first: each may do all that those before it may. */
export const roles: readonly { role: Role; may: string }[] = [
  { role: "OBSERVER", may: "read what belongs to its tenant" },
  { role: "CLIENT", may: "claim runners, run programs and share executions, too" },
  { role: "OPERATOR", may: "put and delete environments, too" },
  { role: "ADMIN", may: "manage tokens, too; for all tenants also tenants" },
];

/** What a page or a button needs. */
export interface Need {
  role: Role;
  /** Whether the caller must act for all tenants. */
  allTenants?: boolean;
}

/** What the dashboard offers, and what it needs. The server decides: this only says what is worth showing. */
export const needs = {
  /** Claim runners, run programs, feed, signal, cancel and share them. */
  use: { role: "CLIENT" },
  /** Put and delete environments. */
  change: { role: "OPERATOR" },
  /** See what the cluster does, and how much room it has. */
  cluster: { role: "OBSERVER", allTenants: true },
  /** Drain the cluster, and end that. */
  drain: { role: "OPERATOR", allTenants: true },
  tokens: { role: "ADMIN" },
  /** Read the audit log. */
  audit: { role: "ADMIN" },
  /** Put and delete tenants. */
  tenants: { role: "ADMIN", allTenants: true },
} satisfies Record<string, Need>;
export type Needed = keyof typeof needs;

const rank = (role: Role) => roles.findIndex((one) => one.role === role);

/** Whether a caller meets a need. One that isn't known meets none. */
export function meets(caller: Caller | undefined, need: Need): boolean {
  if (!caller?.role || rank(caller.role) < rank(need.role)) return false;
  return !need.allTenants || caller.tenant === null;
}

/** Whether what belongs to a tenant is the caller's to change. What is shared belongs to its tenant alone. */
export function owns(caller: Caller | undefined, tenant: string): boolean {
  return caller !== undefined && (caller.tenant === null || caller.tenant === tenant);
}

/** A need in words: "the role ADMIN and a token for all tenants". */
export function inWords(need: Need): string {
  return `the role ${need.role}${need.allTenants ? " and a token for all tenants" : ""}`;
}

/** What a caller is, in words: "CLIENT of tenant a". */
export function described({ role, tenant }: Pick<Caller, "role" | "tenant">): string {
  return `${role ?? "a grant"} ${tenant === null ? "for all tenants" : `of tenant ${tenant}`}`;
}
