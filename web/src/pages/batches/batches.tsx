import { Link } from "wouter";
import { request } from "../../lib/request";
import { BatchFragment, batchVerdict, tally, type BatchParts } from "../../lib/batch";
import { useCaller } from "../../lib/caller";
import { loadedOf, moment, plural, short } from "../../lib/format";
import { graphql } from "../../lib/graphql";
import { everyPage, usePages, type Part } from "../../lib/pages";
import { Empty, Failure, Loading, Page, Tag } from "../../ui/parts";
import { Table, tenantColumn, type Column } from "../../ui/table";

const BatchesQuery = graphql(
  `
    query Batches($first: Int, $after: String) {
      batches(first: $first, after: $after, newestFirst: true) {
        nodes {
          ...BatchParts
        }
        pageInfo {
          hasNextPage
          endCursor
        }
        totalCount
      }
    }
  `,
  [BatchFragment],
);

const columns: readonly Column<BatchParts>[] = [
  {
    name: "Batch",
    width: "minmax(12rem, 3fr)",
    cell: (row) => <Link href={`/batches/${row.id}`}>{tally(row)}</Link>,
  },
  {
    name: "Outcome",
    width: "9rem",
    cell: (row) => {
      const { tone, text } = batchVerdict(row);
      return <Tag tone={tone}>{text}</Tag>;
    },
  },
  { name: "Queued", width: "9rem", cell: (row) => <span className="num" title={row.queuedAt}>{moment(row.queuedAt)}</span> },
  {
    name: "Environment",
    width: "minmax(6rem, 1fr)",
    cell: (row) => <Link href={`/environments/${encodeURIComponent(row.environmentId)}`}>{row.environmentId}</Link>,
  },
  { name: "Runner", width: "8rem", cell: (row) => <span className="mono soft" title={row.runnerId ?? ""}>{row.runnerId ? short(row.runnerId) : "One per case"}</span> },
];
const ofTenants: readonly Column<BatchParts>[] = [...columns, tenantColumn];

/** page loads one page of batches, newest first. */
async function page(first: number, after: string | null, signal?: AbortSignal): Promise<Part<BatchParts>> {
  const { batches } = await request(BatchesQuery, { first, after }, signal);
  return { rows: batches.nodes, total: batches.totalCount, end: batches.pageInfo.endCursor, more: batches.pageInfo.hasNextPage };
}
const source = { page, refresh: everyPage(page) };

/** Batches lists all kept batches, newest first. */
export default function Batches() {
  const { caller, showTenants } = useCaller();
  const { rows, total, loading: asking, error, more, again } = usePages(source, 2_000);
  const loading = asking || !caller;
  return (
    <Page title="Batches" above={{ title: "Executions", href: "/executions" }}>
      <Failure error={error} retry={again} />
      <Table
        label="Batches"
        columns={showTenants ? ofTenants : columns}
        pending={!caller}
        rows={rows}
        rowKey={(row) => row.id}
        total={total}
        least={showTenants ? "60rem" : "52rem"}
        onEnd={more}
        foot={loading ? "" : rows.length < total ? loadedOf(rows.length, total, "batch") : plural(total, "batch", "batches")}
        empty={
          loading ? (
            error ? null : <Loading what="batches" />
          ) : (
            <Empty title="No batches yet">
              <p>
                A batch runs one program with many inputs: <span className="mono">rockpool run --cases DIR</span>, or <span className="mono">cases</span> in the API.
              </p>
            </Empty>
          )
        }
      />
    </Page>
  );
}
