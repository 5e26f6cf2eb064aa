import { useState } from "react";
import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { readFilters, labelText } from "../../lib/filter";
import { bytes, dated, loadedOf, plural, short } from "../../lib/format";
import { percent } from "../../lib/usage";
import { BulkDialog } from "../../ui/bulk";
import { Choice, EnvironmentFilter, IgnoredFilters, LabelFilter, NoMatches, Search, TimeFilter, useFilters } from "../../ui/filters";
import { ClusterLink, RunnerEventsDialog, RunnerName } from "../../ui/runnerevents";
import { Empty, Failure, Loading, Page, Tag, type Tone } from "../../ui/parts";
import { Offer } from "../../ui/offer";
import { ReleaseDialog, releaseOne } from "../../ui/release";
import { useSelection } from "../../ui/selection";
import { Table, tenantColumn, type Column } from "../../ui/table";
import { ClaimDialog } from "./claim";
import { Holder } from "./holder";
import { useRunners, type RunnerRow } from "./userunners";
import { useUsage, type RunnerUsage } from "./useusage";

type State = RunnerRow["state"];

const tones: Record<State, Tone> = { STARTING: "busy", IDLE: "good", CLAIMING: "busy", CLAIMED: "warn", STOPPING: "quiet", GONE: "quiet" };
const words: Record<State, string> = { STARTING: "Starting", IDLE: "Idle", CLAIMING: "Being claimed", CLAIMED: "Claimed", STOPPING: "Stopping", GONE: "Gone" };

const states = (Object.entries(words) as [State, string][]).filter(([name]) => name !== "GONE");

const claimed = (runner: RunnerRow) => runner.state === "CLAIMED";

/** Runners lists all runners, live. */
export default function Runners() {
  const [params, set] = useFilters();
  const read = readFilters(params, states);
  const { environment, state, heldBy } = read;
  const filter = {
    environmentId: environment || null,
    states: states.filter(([name]) => name === state).map(([name]) => name),
    heldBy: heldBy || null,
    labels: read.labels.length > 0 ? read.labels : null,
    since: read.since,
    from: read.from,
    to: read.to,
  };
  const { rows, total, loading: asking, error, more, again } = useRunners(filter);
  const { usage, onSeen } = useUsage(filter, rows);
  const { caller, may, showTenants } = useCaller();
  const loading = asking || !caller;
  const [claiming, setClaiming] = useState(false);
  const [releasing, setReleasing] = useState<RunnerRow>();
  const [several, setSeveral] = useState<readonly RunnerRow[]>();
  const [shown, setShown] = useState<string>();
  const selection = useSelection(rows, claimed, (runner) => `runner ${short(runner.id)}`);

  const columns: readonly Column<RunnerRow>[] = [
    {
      name: "Runner",
      width: "10rem",
      card: 0,
      cell: (runner) => (
        <>
          {may("cluster") ? <RunnerName id={runner.id} onShow={setShown} /> : <span className="mono small" title={runner.id}>{short(runner.id)}</span>} <ClusterLink url={runner.clusterUrl} what={`Runner ${short(runner.id)}`} />
        </>
      ),
    },
    { name: "State", width: "8.5rem", card: 0, cell: (runner) => <Tag tone={tones[runner.state]}>{words[runner.state]}</Tag> },
    {
      name: "Environment",
      width: "minmax(6rem, 1fr)",
      card: 1,
      cell: (runner) => <Link href={`/environments/${encodeURIComponent(runner.environmentId)}`}>{runner.environmentId}</Link>,
    },
    ...(showTenants ? [tenantColumn] : []),
    {
      name: "Started",
      width: "8.5rem",
      card: 1,
      cell: (runner) => (
        <time className="num nowrap" dateTime={runner.createdAt} title={runner.createdAt}>
          {dated(runner.createdAt)}
        </time>
      ),
    },
    { name: "CPU", width: "4.5rem", cell: (runner) => <span className="num">{percent(usage.get(runner.id)?.cpu.share)}</span> },
    { name: "Memory", width: "10.5rem", cell: (runner) => <Memory of={usage.get(runner.id)} /> },
    { name: "Holder or status", width: "minmax(17rem, 3fr)", card: 2, cell: (runner) => <Holder runner={runner} params={params} /> },
    {
      name: "Actions",
      width: "13.5rem",
      card: 3,
      acts: true,
      cell: (runner) =>
        claimed(runner) && (
          <>
            <Link className="button small" href={`/executions?runner=${runner.id}`}>
              Executions
            </Link>
            {may("use") && (
              <>
                <Link className="button small" href={`/terminal?runner=${runner.id}`} state={{ start: true }}>
                  Shell
                </Link>
                <button type="button" className="button small danger" onClick={() => setReleasing(runner)}>
                  Release
                </button>
              </>
            )}
          </>
        ),
    },
  ];

  return (
    <Page
      title="Runners"
      actions={
        <Offer to="use">
          <button type="button" className="button primary" onClick={() => setClaiming(true)}>
            Claim a runner
          </button>
        </Offer>
      }
    >
      <div className="filters">
        <Search label="Part of a holder or a label" placeholder="Held by: ada" value={heldBy} onChange={(value) => set({ "held-by": value })} />
        <Choice label="State" value={state} onChange={(value) => set({ state: value })} all="Any state" options={states} />
        <TimeFilter read={read} set={set} />
        <EnvironmentFilter value={environment} onChange={(value) => set({ environment: value })} />
        <LabelFilter read={read} set={set} />
      </div>
      <IgnoredFilters read={read} set={set} />
      <Failure error={error} retry={again} />
      <Table
        label="Runners"
        columns={columns}
        pending={!caller}
        rows={rows}
        rowKey={(runner) => runner.id}
        total={total}
        least={showTenants ? "94rem" : "86.5rem"}
        onEnd={more}
        onSeen={onSeen}
        foot={loading ? "" : loadedOf(rows.length, total, "runner")}
        selection={may("use") ? selection : undefined}
        actions={
          <button type="button" className="button small danger" onClick={() => setSeveral(selection.chosen)}>
            Release {selection.chosen.length} …
          </button>
        }
        empty={
          loading ? (
            error ? null : <Loading what="runners" />
          ) : read.words.length > 0 ? (
            <NoMatches what="runners" read={read} path="/runners" />
          ) : (
            <Empty title="No runners yet">
              <p>An environment with warm runners fills its pool automatically.</p>
              <Link className="button" href="/">
                Show environments
              </Link>
            </Empty>
          )
        }
      />
      <ClaimDialog open={claiming} environment={environment} onClose={() => setClaiming(false)} />
      <RunnerEventsDialog runner={shown} onClose={() => setShown(undefined)} />
      <ReleaseDialog runner={releasing} onClose={() => setReleasing(undefined)} />
      <BulkDialog
        rows={several}
        title={`Release ${plural(several?.length ?? 0, "runner")}?`}
        agree={`Release ${several?.length ?? 0}`}
        keep="Keep them"
        nameOf={(runner) => [short(runner.id), runner.environmentId, runner.claim?.holder ?? "", ...(runner.claim?.labels.map(labelText) ?? [])].filter((text) => text !== "").join("  ")}
        act={({ id }) => releaseOne(id)}
        did="released"
        had="were already gone"
        onClose={() => setSeveral(undefined)}
        onDone={again}
      >
        This ends the runners with all their programs, and deletes their files. Output is kept.
      </BulkDialog>
    </Page>
  );
}

/** Memory shows a runner's memory and its limit; "–" while unknown. */
function Memory({ of }: { of: RunnerUsage | undefined }) {
  return <span className="num">{of?.memory == null ? "–" : `${bytes(of.memory)} of ${bytes(of.memoryLimit)}`}</span>;
}
