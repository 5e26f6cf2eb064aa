import { requestBoth } from "../../lib/request";
import { graphql, type ResultOf, type VariablesOf } from "../../lib/graphql";
import { merge, pageSize, type Part, type Source } from "../../lib/pages";

const EntryFragment = graphql(`
  fragment EntryParts on AuditEntry {
    id
    at
    tenant
    actorKind
    actorId
    actorName
    role
    action
    objectKind
    objectId
    address
    outcome
  }
`);
export type Entry = ResultOf<typeof EntryFragment>;

const AuditQuery = graphql(
  `
    query AuditLog($tenant: String, $actorId: ID, $action: String, $objectId: ID, $failed: Boolean, $from: Time, $first: Int, $after: String) {
      auditLog(tenant: $tenant, actorId: $actorId, action: $action, objectId: $objectId, failed: $failed, from: $from, first: $first, after: $after, newestFirst: true) {
        nodes {
          ...EntryParts
        }
        pageInfo {
          hasNextPage
          endCursor
        }
      }
    }
  `,
  [EntryFragment],
);
export type AuditFilter = Omit<VariablesOf<typeof AuditQuery>, "first" | "after">;

/** entriesOf returns the filtered entries, newest first. Entries never change, so a refresh loads only new ones. */
export function entriesOf(filter: AuditFilter): Source<Entry> {
  const page = async (first: number, after: string | null, signal?: AbortSignal): Promise<Part<Entry>> => {
    const { data, error } = await requestBoth(AuditQuery, { ...filter, first, after }, signal);
    const { auditLog } = data;
    const { hasNextPage, endCursor } = auditLog.pageInfo;
    return { rows: auditLog.nodes, total: auditLog.nodes.length, end: endCursor, more: hasNextPage, note: error };
  };
  const refresh: Source<Entry>["refresh"] = async (before, signal) => {
    const latest = before.rows[0];
    let newer = await page(pageSize, null, signal);
    if (!latest) return newer;
    while (newer.more && newer.rows.at(-1)!.id > latest.id) {
      const older = await page(pageSize, newer.end, signal);
      newer = { ...older, rows: [...newer.rows, ...older.rows] };
    }
    const rows = merge(before.rows, newer.rows);
    return { ...before, rows, total: rows.length, note: newer.note };
  };
  return { page, refresh };
}

/** actorOf returns the filter value for an actor: its id, or its kind if it has no id. */
export function actorOf({ actorId, actorKind }: Pick<Entry, "actorId" | "actorKind">): string {
  return actorId || actorKind;
}
