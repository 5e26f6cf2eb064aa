import { moment, short } from "../lib/format";
import { graphql, type ResultOf } from "../lib/graphql";
import { useQuery } from "../lib/hooks";
import { Dialog, Failure, Loading, Tag, type Tone } from "./parts";

const RunnerEventsQuery = graphql(`
  query RunnerEvents($id: ID!) {
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
type TaskEvent = ResultOf<typeof RunnerEventsQuery>["cluster"]["taskEvents"][number];

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

/** RunnerName is a runner's short id as a button that shows its events. */
export function RunnerName({ id, onShow }: RunnerNameProps) {
  return (
    <button type="button" className="button plain small mono" title={id} aria-label={`Events of runner ${short(id)}`} onClick={() => onShow(id)}>
      {short(id)}
    </button>
  );
}

/** ClusterLink links to an object in the cluster's web UI, if there is one. */
export function ClusterLink({ url, what }: { url: string | null | undefined; what: string }) {
  if (!url) return null;
  return (
    <a className="small nowrap" href={url} target="_blank" rel="noopener noreferrer" aria-label={`${what} in the cluster's web UI (opens a new tab)`}>
      Nomad ↗
    </a>
  );
}

/** RunnerEventsDialog shows a runner's events, also of one that is gone as long as the server keeps them. */
export function RunnerEventsDialog({ runner, onClose }: { runner: string | undefined; onClose: () => void }) {
  const { data, error, reload } = useQuery(RunnerEventsQuery, { id: runner ?? "" }, { every: 2_000, skip: runner === undefined });
  return (
    <Dialog title={`Events of runner ${short(runner ?? "")}`} open={runner !== undefined} onClose={onClose}>
      <Failure error={error} retry={reload} />
      {!data && !error && <Loading what="the events" />}
      {data && <EventList events={data.cluster.taskEvents} />}
      <div className="row">
        <ClusterLink url={data?.runner?.clusterUrl} what="The runner's job" />
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}

/** EventList lists a runner's events, oldest first. */
export function EventList({ events }: { events: readonly TaskEvent[] }) {
  if (events.length === 0) {
    return <p className="soft">No events. The runner isn't placed yet, or it ended so long ago that the server no longer keeps its events.</p>;
  }
  return (
    <ol className="event-list" aria-label="Events, oldest first">
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
