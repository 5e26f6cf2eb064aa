import { Fragment, useEffect, useState } from "react";
import { bytes, count, duration, moment, plural } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { Choice, EnvironmentFilter, useFilter } from "../../ui/filters";
import { ClusterLink, RunnerEventsDialog, RunnerName } from "../../ui/runnerevents";
import { Card, Empty, Failure, Loading, Notice, Tag, type Tone } from "../../ui/parts";
import { visible } from "../../lib/visible";

const SchedulingQuery = graphql(`
  query Scheduling($environmentId: ID, $status: [EvaluationStatus!]) {
    cluster {
      blocked: evaluations(environmentId: $environmentId, status: [BLOCKED], first: 50) {
        nodes {
          id
          runnerId
          environmentId
          reason
          waitMs
          priority
          clusterUrl
          shortages {
            dimension
            wanted
            free
            kept
            capacity
          }
        }
        totalCount
      }
      evaluations(environmentId: $environmentId, status: $status, first: 100) {
        nodes {
          id
          type
          runnerId
          environmentId
          priority
          trigger
          status
          reason
          createdAt
          waitMs
          workMs
          clusterUrl
        }
        totalCount
      }
      allocations(environmentId: $environmentId, status: [FAILED, LOST], first: 20) {
        nodes {
          id
          runnerId
          environmentId
          status
          message
          endedAt
        }
      }
    }
  }
`);
type Cluster = ResultOf<typeof SchedulingQuery>["cluster"];
type Evaluation = Cluster["evaluations"]["nodes"][number];
type Shortage = Cluster["blocked"]["nodes"][number]["shortages"][number];

const tones: Record<Evaluation["status"], Tone> = { PENDING: "busy", BLOCKED: "warn", COMPLETE: "good", FAILED: "bad", CANCELLED: "quiet" };
const statuses = [
  ["PENDING", "Pending"],
  ["BLOCKED", "Blocked"],
  ["COMPLETE", "Done"],
  ["FAILED", "Failed"],
  ["CANCELLED", "Superseded"],
] as const;
const words = Object.fromEntries(statuses) as Record<Evaluation["status"], string>;
const types: Record<Evaluation["type"], string> = { PLACE: "Place a runner", STOP: "Stop a runner", COLLECT: "Clean up" };
const triggers: Record<Evaluation["trigger"], string> = {
  REGISTER: "a runner is needed",
  DEREGISTER: "a runner is no longer needed",
  RESTORE: "the server restarted",
  ALLOCATION_LOST: "its allocation was lost",
  NO_ROOM: "resources were missing",
  FAILED_FOLLOW_UP: "an earlier evaluation failed",
  INTERVAL: "periodic check",
  NODE_CHANGED: "a node changed",
  PREEMPTED: "preempted by a higher priority",
  OTHER: "another cause",
};
const dimensions: Record<Shortage["dimension"], (n: number) => string> = {
  CPU: (n) => `${count(n)} MHz of CPU`,
  MEMORY: (n) => `${bytes(n * 2 ** 20)} of memory`,
  PROCESSES: (n) => plural(n, "process", "processes"),
  WORKSPACE: (n) => `${bytes(n * 2 ** 20)} of workspace`,
};

/** Scheduler shows the scheduler's evaluations, the runners that it can't place, and the missing resources. */
export function Scheduler() {
  const [environment, setEnvironment] = useFilter("environment");
  const [status, setStatus] = useFilter("status");
  const [shown, setShown] = useState<string>();
  const { data, error, reload } = useQuery(
    SchedulingQuery,
    { environmentId: environment || null, status: statuses.filter(([name]) => name === status).map(([name]) => name) },
    { every: 2_000 },
  );
  const cluster = data?.cluster;
  const known = cluster !== undefined;
  const [begun, setBegun] = useState(false);
  useEffect(() => {
    if (known) setBegun(true);
  }, [known]);
  if (!begun) return error ? <Failure error={error} retry={reload} /> : <Loading what="the scheduler" />;
  return (
    <>
      <Failure error={error} retry={reload} />
      {cluster && cluster.blocked.nodes.length > 0 && <Blocked of={cluster.blocked} onShow={setShown} />}
      {cluster?.allocations.nodes.map((lost) => (
        <Notice key={lost.id} kind="warn">
          Runner <RunnerName id={lost.runnerId} onShow={setShown} /> of {lost.environmentId} {lost.status === "LOST" ? "was lost" : "failed"}
          {lost.endedAt && ` at ${moment(lost.endedAt)}`}
          {lost.message && visible(`: ${lost.message}`)}
        </Notice>
      ))}
      <Card
        title="Scheduler"
        bare
        aside={
          <div className="filters">
            <EnvironmentFilter value={environment} onChange={setEnvironment} />
            <Choice label="Status" value={status} onChange={setStatus} all="Any status" options={statuses} />
          </div>
        }
      >
        {!cluster && !error && <Loading what="the evaluations" />}
        {cluster && <Evaluations nodes={cluster.evaluations.nodes} onShow={setShown} />}
        {cluster && cluster.evaluations.totalCount > 0 && <div className="table-foot num">{plural(cluster.evaluations.totalCount, "evaluation")}, the latest first</div>}
      </Card>
      <RunnerEventsDialog runner={shown} onClose={() => setShown(undefined)} />
    </>
  );
}

/** Of names an evaluation's runner, and links to it in the cluster. */
function Of({ evaluation, onShow }: { evaluation: Pick<Evaluation, "runnerId" | "clusterUrl">; onShow: (id: string) => void }) {
  return (
    <>
      {evaluation.runnerId ? <RunnerName id={evaluation.runnerId} onShow={onShow} /> : "–"} <ClusterLink url={evaluation.clusterUrl} what="The evaluation" />
    </>
  );
}

/** Blocked lists the runners that wait for resources, with the missing amounts. */
function Blocked({ of, onShow }: { of: Cluster["blocked"]; onShow: (id: string) => void }) {
  return (
    <Card title="Waiting for resources" bare aside={<span className="soft small num">{plural(of.totalCount, "runner")}</span>}>
      <div className="list-scroll" tabIndex={0} role="region" aria-label="Runners waiting for resources">
        <table className="list">
          <thead>
            <tr>
              <th>Runner</th>
              <th>Environment</th>
              <th>Missing</th>
              <th>Waiting for</th>
              <th>Priority</th>
            </tr>
          </thead>
          <tbody>
            {of.nodes.map((evaluation) => (
              <tr key={evaluation.id}>
                <td className="nowrap">
                  <Of evaluation={evaluation} onShow={onShow} />
                </td>
                <td>{evaluation.environmentId ?? "–"}</td>
                <td className="text">
                  {evaluation.shortages.length === 0 && visible(evaluation.reason ?? "")}
                  {evaluation.shortages.map((shortage) => (
                    <Fragment key={shortage.dimension}>
                      <Lack of={shortage} />
                      <br />
                    </Fragment>
                  ))}
                </td>
                <td className="num nowrap">{duration(evaluation.waitMs)}</td>
                <td className="num">{evaluation.priority}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

/** Lack says how much of one resource is needed, free and reserved. */
function Lack({ of }: { of: Shortage }) {
  const unit = dimensions[of.dimension];
  return (
    <span>
      {unit(of.wanted)} needed, {unit(of.free)} free{of.kept > 0 && `, ${unit(of.kept)} reserved for runners ahead of it`} <span className="soft">(of {unit(of.capacity)} allocatable)</span>
    </span>
  );
}

function Evaluations({ nodes, onShow }: { nodes: readonly Evaluation[]; onShow: (id: string) => void }) {
  if (nodes.length === 0) {
    return (
      <Empty title="No evaluations">
        <p>The scheduler creates evaluations when a runner is needed or no longer needed, and keeps them for some minutes.</p>
      </Empty>
    );
  }
  return (
    <div className="list-scroll" tabIndex={0} role="region" aria-label="Table of evaluations">
      <table className="list">
        <thead>
          <tr>
            <th>Created</th>
            <th>Status</th>
            <th>Type</th>
            <th>Trigger</th>
            <th>Environment</th>
            <th>Runner</th>
            <th>Waited</th>
            <th>Worked</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((evaluation) => (
            <tr key={evaluation.id}>
              <td className="num nowrap">{moment(evaluation.createdAt)}</td>
              <td>
                <Tag tone={tones[evaluation.status]}>{words[evaluation.status]}</Tag>
              </td>
              <td className="nowrap">{types[evaluation.type]}</td>
              <td className="text">
                {triggers[evaluation.trigger]}
                {evaluation.reason && <div className="soft small">{visible(evaluation.reason)}</div>}
              </td>
              <td>{evaluation.environmentId ?? "–"}</td>
              <td className="nowrap">
                <Of evaluation={evaluation} onShow={onShow} />
              </td>
              <td className="num nowrap">{duration(evaluation.waitMs)}</td>
              <td className="num nowrap">{evaluation.workMs === null ? "–" : duration(evaluation.workMs)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
