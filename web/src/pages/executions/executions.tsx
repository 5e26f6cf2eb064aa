import { useState } from "react";
import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { commandLine, duration, loadedOf, moment, short } from "../../lib/format";
import { verdict } from "../../lib/outcome";
import { CancelDialog, SignalDialog } from "../../ui/control";
import { Choice, EnvironmentFilter, Narrowed, useFilter } from "../../ui/filters";
import { Offer } from "../../ui/offer";
import { Empty, Failure, Loading, Page, Tag } from "../../ui/parts";
import { Table, tenantColumn, type Column } from "../../ui/table";
import { useExecutions, type ExecutionRow, type Filter } from "./useexecutions";

const told: readonly Column<ExecutionRow>[] = [
  {
    name: "Execution",
    width: "minmax(12rem, 3fr)",
    cell: (row) => (
      <Link className="mono" href={`/executions/${row.id}`} title={commandLine(row.command)}>
        {commandLine(row.command) || row.id}
      </Link>
    ),
  },
  {
    name: "Outcome",
    width: "9rem",
    cell: (row) => {
      const { tone, text } = verdict(row);
      return <Tag tone={tone}>{text}</Tag>;
    },
  },
  { name: "Took", width: "5.5rem", cell: (row) => <span className="num">{row.usage ? duration(row.usage.wallMs) : "–"}</span> },
  { name: "Began", width: "9rem", cell: (row) => <span className="num" title={row.marks.queuedAt}>{moment(row.marks.queuedAt)}</span> },
  {
    name: "Environment",
    width: "minmax(6rem, 1fr)",
    cell: (row) => <Link href={`/environments/${encodeURIComponent(row.environmentId)}`}>{row.environmentId}</Link>,
  },
  { name: "Runner", width: "8rem", cell: (row) => <span className="mono soft" title={row.runnerId}>{short(row.runnerId)}</span> },
];

const states = [
  ["PENDING", "Waiting"],
  ["RUNNING", "Running"],
  ["FINISHED", "Ended"],
] as const;

type Asked = { row: ExecutionRow; what: "signal" | "cancel" } | undefined;

/** Every execution that is kept, the latest first. */
export default function Executions() {
  const [environment, setEnvironment] = useFilter("environment");
  const [state, setState] = useFilter("state");
  const [runner, setRunner] = useFilter("runner");
  const filter: Filter = {
    environmentId: environment || null,
    runnerId: runner || null,
    states: states.filter(([name]) => name === state).map(([name]) => name),
  };
  const { rows, total, loading: asking, error, more, again } = useExecutions(filter);
  const { caller, may, showTenants } = useCaller();
  const loading = asking || !caller;
  const [asked, setAsked] = useState<Asked>();
  const columns: readonly Column<ExecutionRow>[] = [
    ...told,
    ...(showTenants ? [tenantColumn] : []),
    {
      name: "Actions",
      width: "9.5rem",
      acts: true,
      cell: (row) =>
        row.state !== "FINISHED" &&
        may("use") && (
          <>
            {row.state === "RUNNING" && (
              <button type="button" className="button small" aria-label={`Signal ${commandLine(row.command)}`} onClick={() => setAsked({ row, what: "signal" })}>
                Signal …
              </button>
            )}
            <button type="button" className="button small danger" aria-label={`Cancel ${commandLine(row.command)}`} onClick={() => setAsked({ row, what: "cancel" })}>
              Cancel …
            </button>
          </>
        ),
    },
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
        <EnvironmentFilter value={environment} onChange={setEnvironment} />
        <Choice label="State" value={state} onChange={setState} all="Any state" options={states} />
        {runner && (
          <Narrowed to={`runner ${short(runner)}`} all="show all runners" onClear={() => setRunner("")} />
        )}
      </div>
      <Failure error={error} retry={again} />
      <Table
        label="Executions"
        columns={columns}
        pending={!caller}
        rows={rows}
        rowKey={(row) => row.id}
        total={total}
        least={showTenants ? "76rem" : "68rem"}
        onEnd={more}
        foot={loading ? "" : loadedOf(rows.length, total, "execution")}
        empty={
          loading ? (
            error ? null : <Loading what="executions" />
          ) : (
            <Empty title="No executions here">
              <p>{environment || state || runner ? "None matches these filters." : "What is run shows here, and is kept for a while."}</p>
              <Link className="button" href={may("use") ? "/playground" : "/executions"}>
                {may("use") ? "Run a program" : "All executions"}
              </Link>
            </Empty>
          )
        }
      />
      <SignalDialog execution={asked?.what === "signal" ? asked.row : undefined} onClose={() => setAsked(undefined)} onDone={again} />
      <CancelDialog execution={asked?.what === "cancel" ? asked.row : undefined} onClose={() => setAsked(undefined)} onDone={again} />
    </Page>
  );
}
