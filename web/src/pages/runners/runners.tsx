import { useState } from "react";
import { Link } from "wouter";
import { useCaller } from "../../lib/caller";
import { bytes, lasting, loadedOf, moment, short } from "../../lib/format";
import { useNow } from "../../lib/time";
import { percent } from "../../lib/usage";
import { Choice, EnvironmentFilter, Search, useFilter } from "../../ui/filters";
import { ClusterLink, HappenedDialog, RunnerName } from "../../ui/happened";
import { Empty, Failure, Loading, Page, Tag, type Tone } from "../../ui/parts";
import { Offer } from "../../ui/offer";
import { ReleaseDialog } from "../../ui/release";
import { Table, tenantColumn, type Column } from "../../ui/table";
import { ClaimDialog } from "./claim";
import { useRunners, type RunnerRow } from "./userunners";
import { useUsage, type RunnerUsage } from "./useusage";
import { Told } from "../../ui/told";

type State = RunnerRow["state"];

const tones: Record<State, Tone> = { STARTING: "busy", IDLE: "good", CLAIMING: "busy", CLAIMED: "warn", STOPPING: "quiet", GONE: "quiet" };
const words: Record<State, string> = { STARTING: "Starting", IDLE: "Idle", CLAIMING: "Being claimed", CLAIMED: "Claimed", STOPPING: "Stopping", GONE: "Gone" };

const states = (Object.entries(words) as [State, string][]).filter(([name]) => name !== "GONE");

/** Every runner that there is, live. */
export default function Runners() {
  const [environment, setEnvironment] = useFilter("environment");
  const [state, setState] = useFilter("state");
  const [heldBy, setHeldBy] = useFilter("held-by");
  const filter = {
    environmentId: environment || null,
    states: states.filter(([name]) => name === state).map(([name]) => name),
    heldBy: heldBy || null,
  };
  const { rows, total, loading: asking, error, more, again } = useRunners(filter);
  const { usage, onSeen } = useUsage(filter, rows);
  const { caller, may, showTenants } = useCaller();
  const loading = asking || !caller;
  const [claiming, setClaiming] = useState(false);
  const [releasing, setReleasing] = useState<RunnerRow>();
  const [shown, setShown] = useState<string>();

  const columns: readonly Column<RunnerRow>[] = [
    {
      name: "Runner",
      width: "10rem",
      cell: (runner) => (
        <>
          {may("cluster") ? <RunnerName id={runner.id} onShow={setShown} /> : <span className="mono small" title={runner.id}>{short(runner.id)}</span>} <ClusterLink url={runner.clusterUrl} what={`Runner ${short(runner.id)}`} />
        </>
      ),
    },
    { name: "State", width: "8.5rem", cell: (runner) => <Tag tone={tones[runner.state]}>{words[runner.state]}</Tag> },
    {
      name: "Environment",
      width: "minmax(6rem, 1fr)",
      cell: (runner) => <Link href={`/environments/${encodeURIComponent(runner.environmentId)}`}>{runner.environmentId}</Link>,
    },
    ...(showTenants ? [tenantColumn] : []),
    { name: "Started", width: "5.5rem", cell: (runner) => <span className="num" title={runner.createdAt}>{moment(runner.createdAt)}</span> },
    { name: "CPU", width: "4.5rem", cell: (runner) => <span className="num">{percent(usage.get(runner.id)?.cpu.share)}</span> },
    { name: "Memory", width: "10.5rem", cell: (runner) => <Memory of={usage.get(runner.id)} /> },
    { name: "Held by, or waits for", width: "minmax(17rem, 3fr)", cell: (runner) => <Holder runner={runner} /> },
    {
      name: "Actions",
      width: "13.5rem",
      acts: true,
      cell: (runner) =>
        runner.state === "CLAIMED" && (
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
        <EnvironmentFilter value={environment} onChange={setEnvironment} />
        <Choice label="State" value={state} onChange={setState} all="Any state" options={states} />
        <Search label="Held by, a part of a label" placeholder="Held by: name=value" value={heldBy} onChange={setHeldBy} />
      </div>
      <Failure error={error} retry={again} />
      <Table
        label="Runners"
        columns={columns}
        pending={!caller}
        rows={rows}
        rowKey={(runner) => runner.id}
        total={total}
        least={showTenants ? "89rem" : "81.5rem"}
        onEnd={more}
        onSeen={onSeen}
        foot={loading ? "" : loadedOf(rows.length, total, "runner")}
        empty={
          loading ? (
            error ? null : <Loading what="runners" />
          ) : state || environment || heldBy ? (
            <Empty title="No runners here">
              <p>None matches these filters.</p>
              <Link className="button" href="/runners">
                Show all runners
              </Link>
            </Empty>
          ) : (
            <Empty title="No runners yet">
              <p>An environment with warm runners fills its pool by itself.</p>
              <Link className="button" href="/">
                Look at the environments
              </Link>
            </Empty>
          )
        }
      />
      <ClaimDialog open={claiming} environment={environment} onClose={() => setClaiming(false)} />
      <HappenedDialog runner={shown} onClose={() => setShown(undefined)} />
      <ReleaseDialog runner={releasing} onClose={() => setReleasing(undefined)} />
    </Page>
  );
}

function Memory({ of }: { of: RunnerUsage | undefined }) {
  return <span className="num">{of?.memory == null ? "–" : `${bytes(of.memory)} of ${bytes(of.memoryLimit)}`}</span>;
}

function Holder({ runner }: { runner: RunnerRow }) {
  const now = useNow();
  const { claim } = runner;
  if (!claim) return <span className="soft">{runner.message ? <Told text={runner.message} /> : "–"}</span>;
  const labels = claim.labels.map((label) => `${label.name}=${label.value}`).join(" ");
  return (
    <span className="num" title={`since ${claim.claimedAt}`}>
      {labels && <span className="mono"><Told text={labels} /> </span>}
      {lasting(claim.claimedAt, now)}, {claim.expiresAt ? `until ${moment(claim.expiresAt)}` : "for good"}
    </span>
  );
}
