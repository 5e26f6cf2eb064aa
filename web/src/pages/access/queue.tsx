import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { ago, count, duration, lasting, plural } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { useNow } from "../../lib/time";
import { EnvironmentFilter, TenantFilter, useFilter, useTenantFilter } from "../../ui/filters";
import { Empty, Failure, Loading, Page } from "../../ui/parts";
import { Table, tenantColumn, type Column } from "../../ui/table";

const WaitingFragment = graphql(`
  fragment WaitingParts on WaitingClaim {
    id
    tenant
    environmentId
    position
    estimatedWaitMs
    since
    expiresAt
  }
`);
export type Waiting = ResultOf<typeof WaitingFragment>;

const QueueQuery = graphql(
  `
    query Queue($tenant: String, $environmentId: ID) {
      waitingClaims(tenant: $tenant, environmentId: $environmentId, first: 1000) {
        nodes {
          ...WaitingParts
        }
        totalCount
      }
    }
  `,
  [WaitingFragment],
);

/** inOrder sorts claims by environment, and within it by position; those without a position come last. */
export function inOrder(claims: readonly Waiting[]): Waiting[] {
  const at = ({ position }: Waiting) => position ?? Infinity;
  return claims.toSorted((a, b) => a.environmentId.localeCompare(b.environmentId) || (at(a) === at(b) ? a.id.localeCompare(b.id) : at(a) - at(b)));
}

/** columnsAt returns the columns with times relative to now. */
export function columnsAt(now: number): readonly Column<Waiting>[] {
  return [
    { name: "Environment", width: "minmax(8rem, 2fr)", cell: (row) => <Link href={`/environments/${encodeURIComponent(row.environmentId)}`}>{row.environmentId}</Link> },
    {
      name: "Position",
      width: "12rem",
      cell: (row) => (row.position === null ? <span className="soft small">Unknown, or quota reached</span> : <span className="num">{row.position}</span>),
    },
    { name: "Waiting for", width: "7rem", cell: (row) => <span className="num" title={row.since}>{lasting(row.since, now)}</span> },
    {
      name: "Estimated wait",
      width: "8rem",
      cell: (row) => (row.estimatedWaitMs === null ? <span className="soft">–</span> : <span className="num">{duration(row.estimatedWaitMs)}</span>),
    },
    { name: "Expires", width: "8rem", cell: (row) => <span className="num" title={row.expiresAt}>{ago(row.expiresAt, now)}</span> },
  ];
}

/** Queue shows the waiting claims of the tenants that the caller sees. */
export default function Queue() {
  const { caller, showTenants } = useCaller();
  const [environment, setEnvironment] = useFilter("environment");
  const [tenant, setTenant] = useTenantFilter();
  const { data, error, reload } = useQuery(QueueQuery, { environmentId: environment || null, tenant: tenant || null }, { every: 2_000 });
  const now = useNow();
  const rows = inOrder(data?.waitingClaims.nodes ?? []);
  const total = data?.waitingClaims.totalCount ?? 0;
  const columns = columnsAt(now);
  return (
    <Page title="Queue">
      <p className="soft">Claims wait here when no runner is idle. Tenants take turns by weight; within a tenant, its callers take turns.</p>
      <div className="filters">
        <EnvironmentFilter value={environment} onChange={setEnvironment} />
        <TenantFilter value={tenant} onChange={setTenant} />
      </div>
      <Failure error={error} retry={reload} />
      <Table
        label="Waiting claims"
        columns={showTenants ? [...columns, tenantColumn] : columns}
        pending={!caller}
        rows={rows}
        rowKey={(row) => row.id}
        total={total}
        least={showTenants ? "61rem" : "53rem"}
        foot={caller && data && (rows.length < total ? `The oldest ${count(rows.length)} of ${plural(total, "claim")}` : plural(total, "claim"))}
        empty={
          caller && data ? (
            <Empty title="No waiting claims">
              <p>{environment || tenant ? "No claim matches these filters." : "A claim waits when no runner is idle, or when its tenant has reached its quota of runners."}</p>
              {caller.tenant !== null && <p>Claims of other tenants aren't shown.</p>}
            </Empty>
          ) : (
            error ? null : <Loading what="the queue" />
          )
        }
      />
    </Page>
  );
}
