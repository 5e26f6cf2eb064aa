import { useState } from "react";
import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { readFilters } from "../../lib/filter";
import { commandText, dated, duration, loadedOf, plural, short } from "../../lib/format";
import { verdict } from "../../lib/outcome";
import { BulkDialog } from "../../ui/bulk";
import { cancelOne, CancelDialog, SignalDialog } from "../../ui/control";
import { Choice, EnvironmentFilter, IgnoredFilters, LabelFilter, ActiveFilter, NoMatches, Search, TimeFilter, useFilters } from "../../ui/filters";
import { Labels } from "../../ui/labels";
import { Offer } from "../../ui/offer";
import { Empty, Failure, Loading, Page, Tag } from "../../ui/parts";
import { useSelection } from "../../ui/selection";
import { Table, tenantColumn, type Column } from "../../ui/table";
import { outcomeFilter, outcomes } from "./outcomes";
import { useExecutions, type ExecutionRow, type Filter } from "./useexecutions";

const states = [
  ["PENDING", "Waiting"],
  ["RUNNING", "Running"],
  ["FINISHED", "Ended"],
] as const;

/** nameOf returns the text by which a row is known: its command, or its id. */
const nameOf = (row: ExecutionRow) => commandText(row.commandLine) || row.id;
/** open reports whether an execution can still be cancelled. */
const open = (row: ExecutionRow) => row.state !== "FINISHED";

/** columnsOf returns the table's columns. Labels keep the filters of params in their links. */
function columnsOf(params: URLSearchParams): readonly Column<ExecutionRow>[] {
  return [
    {
      name: "Execution",
      width: "minmax(12rem, 3fr)",
      card: 0,
      cell: (row) => (
        <Link className="mono" href={`/executions/${row.id}`} title={commandText(row.commandLine, 2000)}>
          {nameOf(row)}
        </Link>
      ),
    },
    {
      name: "Outcome",
      width: "9rem",
      card: 1,
      cell: (row) => {
        const { tone, text } = verdict(row);
        return <Tag tone={tone}>{text}</Tag>;
      },
    },
    { name: "Labels", width: "minmax(10rem, 2fr)", card: 2, cell: (row) => (row.labels.length > 0 ? <Labels labels={row.labels} path="/executions" params={params} /> : <span className="soft">–</span>) },
    {
      name: "Queued",
      width: "8.5rem",
      card: 1,
      cell: (row) => (
        <time className="num nowrap" dateTime={row.timestamps.queuedAt} title={row.timestamps.queuedAt}>
          {dated(row.timestamps.queuedAt)}
        </time>
      ),
    },
    { name: "Duration", width: "5.5rem", cell: (row) => <span className="num">{row.usage ? duration(row.usage.wallMs) : "–"}</span> },
    {
      name: "Environment",
      width: "minmax(6rem, 1fr)",
      card: 1,
      cell: (row) => <Link href={`/environments/${encodeURIComponent(row.environmentId)}`}>{row.environmentId}</Link>,
    },
    { name: "Runner", width: "6.5rem", cell: (row) => <span className="mono soft" title={row.runnerId}>{short(row.runnerId)}</span> },
  ];
}

type Asked = { row: ExecutionRow; what: "signal" | "cancel" } | undefined;

/** Executions lists all kept executions, newest first. */
export default function Executions() {
  const [params, set] = useFilters();
  const read = readFilters(params, states, outcomes);
  const { environment, state, runner } = read;
  const filter: Filter = {
    environmentId: environment || null,
    runnerId: runner || null,
    states: states.filter(([name]) => name === state).map(([name]) => name),
    ...outcomeFilter(read.outcome),
    labels: read.labels.length > 0 ? read.labels : null,
    text: read.text || null,
    since: read.since,
    from: read.from,
    to: read.to,
  };
  const { rows, total, loading: asking, error, more, again } = useExecutions(filter);
  const { caller, may, showTenants } = useCaller();
  const loading = asking || !caller;
  const [asked, setAsked] = useState<Asked>();
  const [cancelling, setCancelling] = useState<readonly ExecutionRow[]>();
  const selection = useSelection(rows, open, nameOf);
  const n = selection.chosen.length;
  const columns: readonly Column<ExecutionRow>[] = [
    ...columnsOf(params),
    ...(showTenants ? [tenantColumn] : []),
    ...(may("use") ? [actions(setAsked)] : []),
  ];
  return (
    <Page
      title="Executions"
      actions={
        <>
          <Link href="/batches" className="button">
            Batches
          </Link>
          <Offer to="use">
            <Link href="/playground" className="button primary">
              Run a program
            </Link>
          </Offer>
        </>
      }
    >
      <div className="filters">
        <Search label="Text in a label or a command" value={read.text} onChange={(text) => set({ text })} placeholder="Label or command: ada" />
        <button type="button" className="button" aria-pressed={read.outcome === "failed"} onClick={() => set({ outcome: read.outcome === "failed" ? "" : "failed" })}>
          Failed
        </button>
        <Choice label="Outcome" value={read.outcome} onChange={(outcome) => set({ outcome })} all="Any outcome" options={outcomes} />
        <Choice label="State" value={state} onChange={(value) => set({ state: value })} all="Any state" options={states} />
        <TimeFilter read={read} set={set} />
        <EnvironmentFilter value={environment} onChange={(value) => set({ environment: value })} />
        <LabelFilter read={read} set={set} />
        {runner && <ActiveFilter to={`runner ${short(runner)}`} all="show all runners" onClear={() => set({ runner: "" })} />}
      </div>
      <IgnoredFilters read={read} set={set} />
      <Failure error={error} retry={again} />
      <Table
        label="Executions"
        columns={columns}
        pending={!caller}
        rows={rows}
        rowKey={(row) => row.id}
        total={total}
        least={showTenants ? "85rem" : "77rem"}
        onEnd={more}
        foot={loading ? "" : loadedOf(rows.length, total, "execution")}
        selection={may("use") ? selection : undefined}
        actions={
          <button type="button" className="button small danger" onClick={() => setCancelling(selection.chosen)}>
            Cancel {n} …
          </button>
        }
        empty={
          loading ? (
            error ? null : <Loading what="executions" />
          ) : read.words.length > 0 ? (
            <NoMatches what="executions" read={read} path="/executions" />
          ) : (
            <Empty title="No executions yet">
              <p>Executions appear here, and are kept for a limited time.</p>
              {may("use") && (
                <Link className="button" href="/playground">
                  Run a program
                </Link>
              )}
            </Empty>
          )
        }
      />
      <SignalDialog execution={asked?.what === "signal" ? asked.row : undefined} onClose={() => setAsked(undefined)} onDone={again} />
      <CancelDialog execution={asked?.what === "cancel" ? asked.row : undefined} onClose={() => setAsked(undefined)} onDone={again} />
      <BulkDialog
        rows={cancelling}
        title={`Cancel ${plural(cancelling?.length ?? 0, "execution")}?`}
        agree={`Cancel ${cancelling?.length ?? 0}`}
        keep="Let them run"
        nameOf={(row) => [nameOf(row), ...row.labels.map(({ name, value }) => `${name}=${value}`)].join("  ")}
        act={({ id }) => cancelOne(id)}
        did="cancelled"
        had="had already ended"
        onClose={() => setCancelling(undefined)}
        onDone={again}
      >
        This ends the executions and every process that they started. Their output and their runners are kept.
      </BulkDialog>
    </Page>
  );
}

/** actions returns the column of buttons. ask opens the dialog of one. */
function actions(ask: (asked: Asked) => void): Column<ExecutionRow> {
  return {
    name: "Actions",
    width: "9.5rem",
    card: 0,
    acts: true,
    cell: (row) =>
      open(row) && (
        <>
          {row.state === "RUNNING" && (
            <button type="button" className="button small" aria-label={`Signal ${nameOf(row)}`} onClick={() => ask({ row, what: "signal" })}>
              Signal …
            </button>
          )}
          <button type="button" className="button small danger" aria-label={`Cancel ${nameOf(row)}`} onClick={() => ask({ row, what: "cancel" })}>
            Cancel …
          </button>
        </>
      ),
  };
}
