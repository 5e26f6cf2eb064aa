import { moment, short } from "../lib/format";
import { graphql, type ResultOf } from "../lib/graphql";
import { useQuery } from "../lib/hooks";
import { Dialog, Failure, Loading, Tag, type Tone } from "./parts";

const HappenedQuery = graphql(`
  query Happened($id: ID!) {
    runner(id: $id) {
      clusterUrl
    }
    cluster {
      kind
      taskEvents(runnerId: $id) {
        at
        kind
        message
      }
    }
  }
`);
type TaskEvent = ResultOf<typeof HappenedQuery>["cluster"]["taskEvents"][number];

const marks: Record<TaskEvent["kind"], readonly [Tone, string]> = {
  PLACED: ["busy", "Placed"],
  PREPARING: ["busy", "Preparing"],
  FETCHING: ["busy", "Fetching"],
  STARTED: ["busy", "Started"],
  READY: ["good", "Ready"],
  START_FAILED: ["bad", "Start failed"],
  RESTARTING: ["warn", "Restarting"],
  RESTORED: ["good", "Restored"],
  EXITED: ["warn", "Exited"],
  OUT_OF_MEMORY: ["bad", "Out of memory"],
  GONE: ["bad", "Gone"],
  STOPPING: ["quiet", "Stopping"],
  FORCED: ["warn", "Killed"],
  REMOVAL_FAILED: ["bad", "Removal failed"],
  ENDED: ["quiet", "Ended"],
  OTHER: ["quiet", "Other"],
};

export interface RunnerNameProps {
  id: string;
  onShow: (id: string) => void;
}

/** A runner's id, which shows what happened to it. */
export function RunnerName({ id, onShow }: RunnerNameProps) {
  return (
    <button type="button" className="button plain small mono" title={id} aria-label={`What happened to runner ${short(id)}`} onClick={() => onShow(id)}>
      {short(id)}
    </button>
  );
}

/** A way to where the cluster's own pages show something, where they do. */
export function ClusterLink({ url, what }: { url: string | null | undefined; what: string }) {
  if (!url) return null;
  return (
    <a className="small nowrap" href={url} target="_blank" rel="noopener noreferrer" aria-label={`${what} in the cluster's own pages (opens a new tab)`}>
      Nomad ↗
    </a>
  );
}

/** What happened to a runner; also to one that is gone, as long as the server remembers. */
export function HappenedDialog({ runner, onClose }: { runner: string | undefined; onClose: () => void }) {
  const { data, error, reload } = useQuery(HappenedQuery, { id: runner ?? "" }, { every: 2_000, skip: runner === undefined });
  return (
    <Dialog title={`What happened to runner ${short(runner ?? "")}`} open={runner !== undefined} onClose={onClose}>
      <Failure error={error} retry={reload} />
      {!data && !error && <Loading what="its events" />}
      {data && <Happened events={data.cluster.taskEvents} />}
      <div className="row">
        <ClusterLink url={data?.runner?.clusterUrl} what="Its job" />
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

export function Happened({ events }: { events: readonly TaskEvent[] }) {
  if (events.length === 0) {
    return <p className="soft">Nothing is known of it: it waits for its place, or it is gone for so long that the server has forgotten it.</p>;
  }
  return (
    <ol className="happened" aria-label="What happened, the oldest first">
      {events.map((event) => (
        <li key={`${event.at} ${event.kind}`}>
          <time className="num small soft nowrap" dateTime={event.at} title={event.at}>
            {moment(event.at)}
          </time>
          <Tag tone={marks[event.kind][0]}>{marks[event.kind][1]}</Tag>
          <span>{event.message}</span>
        </li>
      ))}
    </ol>
  );
}
