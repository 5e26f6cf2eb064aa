import { useState } from "react";
import { Link } from "wouter";
import { request } from "../../lib/request";
import { BatchFragment, batchVerdict, caseVerdict, tally } from "../../lib/batch";
import { useCaller } from "../../lib/caller";
import { between, commandText, duration, plural, short } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { OutcomeFragment, sentence } from "../../lib/outcome";
import { Card, Dialog, Empty, Facts, Failure, Loading, Page, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";

const BatchQuery = graphql(
  `
    query Batch($id: ID!, $after: String) {
      batch(id: $id) {
        ...BatchParts
        stopOnFailure
        build {
          id
          commandLine
          ...OutcomeParts
        }
        cases(first: 1000, after: $after) {
          nodes {
            index
            state
            execution {
              id
              ...OutcomeParts
            }
          }
          pageInfo {
            hasNextPage
            endCursor
          }
        }
      }
    }
  `,
  [BatchFragment, OutcomeFragment],
);
type Details = NonNullable<ResultOf<typeof BatchQuery>["batch"]>;
type Case = Details["cases"]["nodes"][number];

/** allCases adds the cases of later pages: a page has fewer than requested if their commands are long. */
async function allCases(data: ResultOf<typeof BatchQuery>, signal: AbortSignal): Promise<ResultOf<typeof BatchQuery>> {
  let batch = data.batch;
  while (batch?.cases.pageInfo.hasNextPage) {
    const { batch: next } = await request(BatchQuery, { id: batch.id, after: batch.cases.pageInfo.endCursor }, signal);
    batch = next && { ...next, cases: { ...next.cases, nodes: [...batch.cases.nodes, ...next.cases.nodes] } };
  }
  return { batch };
}

const CancelMutation = graphql(`
  mutation CancelBatch($id: ID!) {
    cancelBatch(id: $id) {
      batch {
        state
      }
    }
  }
`);

const columns: readonly Column<Case>[] = [
  {
    name: "Case",
    width: "7rem",
    cell: (row) => (row.execution ? <Link className="num" href={`/executions/${row.execution.id}`}>{`Case ${row.index}`}</Link> : <span className="num">{`Case ${row.index}`}</span>),
  },
  {
    name: "State",
    width: "8rem",
    cell: (row) => {
      const { tone, text } = caseVerdict(row.state);
      return <Tag tone={tone}>{text}</Tag>;
    },
  },
  { name: "Outcome", width: "minmax(14rem, 1fr)", cell: (row) => (row.execution ? sentence(row.execution) : "–") },
  { name: "Duration", width: "6rem", cell: (row) => <span className="num">{row.execution?.usage ? duration(row.execution.usage.wallMs) : "–"}</span> },
];

/** Batch shows one batch: its build and the outcome of each case. */
export default function Batch({ id }: { id: string }) {
  const { may, showTenants } = useCaller();
  const [ended, setEnded] = useState(false);
  const { data, error, reload } = useQuery(BatchQuery, { id }, { ...(ended ? {} : { every: 1_000 }), rest: allCases });
  const batch = data?.batch;
  const above = { title: "Batches", href: "/batches" };
  if (batch?.state === "FINISHED" && !ended) setEnded(true); // a finished batch never changes
  if (!batch) {
    return (
      <Page title={`Batch ${short(id)}`} above={above}>
        {error?.code === "BATCH_NOT_FOUND" ? (
          <Empty title="Batch not found">
            <p>It doesn't exist, or it ended and is no longer kept.</p>
            <Link href="/batches" className="button">
              All batches
            </Link>
          </Empty>
        ) : error ? (
          <Failure error={error} retry={reload} />
        ) : (
          <Loading what="the batch" />
        )}
      </Page>
    );
  }
  const { tone, text } = batchVerdict(batch);
  const cases = batch.cases.nodes;
  return (
    <Page title={`Batch of ${plural(batch.caseCount, "case")}`} above={above} actions={batch.state !== "FINISHED" && may("use") && <Cancel id={id} onDone={reload} />}>
      <Card>
        <div className="stack">
          <div className="row" aria-live="polite">
            <Tag tone={tone}>{text}</Tag>
            <span className="grow">
              {tally(batch)}
              {batch.message ? `: ${batch.message}.` : "."}
            </span>
            <span className="mono soft break">{id}</span>
          </div>
          <Facts>
            {[
              ["Environment", <Link key="e" href={`/environments/${encodeURIComponent(batch.environmentId)}`}>{batch.environmentId}</Link>],
              ["Runner", batch.runnerId ? <Link key="r" className="mono" title={batch.runnerId} href={`/executions?runner=${batch.runnerId}`}>{short(batch.runnerId)}</Link> : "One for each case"],
              ["Build", <Build key="b" batch={batch} />],
              ["Duration", batch.finishedAt ? duration(between(batch.queuedAt, batch.finishedAt)) : "–"],
              ["On failure", batch.stopOnFailure ? "Stop" : "Continue"],
              ...(showTenants ? [["Tenant", batch.tenant] satisfies [string, string]] : []),
            ]}
          </Facts>
        </div>
      </Card>
      <Failure error={error} retry={reload} />
      <Table label="Cases" columns={columns} rows={cases} rowKey={(row) => String(row.index)} total={cases.length} least="40rem" foot={plural(cases.length, "case")} empty={null} />
    </Page>
  );
}

/** Build links to the batch's build. An execution that is no longer kept is "Not available". */
function Build({ batch }: { batch: Details }) {
  if (!batch.build) return batch.hasBuild ? "Not available" : "None";
  return (
    <Link className="mono" href={`/executions/${batch.build.id}`} title={sentence(batch.build)}>
      {commandText(batch.build.commandLine, 80)}
    </Link>
  );
}

/** Cancel asks for confirmation and cancels the batch. */
function Cancel({ id, onDone }: { id: string; onDone: () => void }) {
  const [open, setOpen] = useState(false);
  const cancel = useAction(async () => {
    await request(CancelMutation, { id });
    onDone();
    setOpen(false);
  });
  return (
    <>
      <button type="button" className="button danger" onClick={() => setOpen(true)}>
        Cancel …
      </button>
      <Dialog title="Cancel this batch?" open={open} onClose={() => setOpen(false)}>
        <p>The running case ends and the remaining cases are skipped. Output is kept.</p>
        <Failure error={cancel.error} />
        <div className="row">
          <button type="button" className="button" onClick={() => setOpen(false)}>
            Let it run
          </button>
          <button type="button" className="button danger" disabled={cancel.busy} onClick={() => void cancel.run()}>
            Cancel it
          </button>
        </div>
      </Dialog>
    </>
  );
}
