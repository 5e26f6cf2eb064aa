import { Link } from "wouter";
import { commandLine, count, duration, moment, plural, short } from "../../lib/format";
import { verdict } from "../../lib/outcome";
import { Choice, EnvironmentFilter, useFilter } from "../../ui/filters";
import { Empty, Failure, Loading, Page, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { useExecutions, type ExecutionRow, type Filter } from "./useexecutions";

const columns: readonly Column<ExecutionRow>[] = [
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
  const { rows, total, loading, error, more } = useExecutions(filter);
  return (
    <Page
      title="Executions"
      actions={
        <Link href="/playground" className="button primary">
          Run a program
        </Link>
      }
    >
      <div className="filters">
        <EnvironmentFilter value={environment} onChange={setEnvironment} />
        <Choice label="State" value={state} onChange={setState} all="Any state" options={states} />
        {runner && (
          <button type="button" className="button small" onClick={() => setRunner("")}>
            Only runner {short(runner)} ×
          </button>
        )}
      </div>
      <Failure error={error} />
      <Table
        label="Executions"
        columns={columns}
        rows={rows}
        rowKey={(row) => row.id}
        total={total}
        least="58rem"
        onEnd={more}
        foot={loading ? "" : rows.length < total ? `${count(rows.length)} of ${plural(total, "execution")}; scrolling loads more` : plural(total, "execution")}
        empty={
          loading ? (
            error ? null : <Loading what="executions" />
          ) : (
            <Empty title="No executions here">
              <p>{environment || state || runner ? "None matches these filters." : "What is run shows here, and is kept for a while."}</p>
              <Link className="button" href="/playground">
                Run a program
              </Link>
            </Empty>
          )
        }
      />
    </Page>
  );
}
