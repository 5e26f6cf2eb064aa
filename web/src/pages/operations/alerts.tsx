import { useState } from "react";
import { Link } from "wouter";
import type { ServerError } from "../../lib/request";
import { count, lasting, moment } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import type { Alert } from "../../lib/pools";
import { Card, Empty, Failure, Tag } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";

export const AlertHistoryQuery = graphql(`
  query AlertHistory {
    poolAlertHistory {
      environmentId
      state
      since
      idle
      size
      threshold
      reason
    }
  }
`);
export type Past = ResultOf<typeof AlertHistoryQuery>["poolAlertHistory"][number];

const few = 10;

export interface AlertsProps {
  standing: ReadonlyMap<string, Alert>;
  /** Raised and resolved alerts, newest first; undefined while unknown. */
  history: readonly Past[] | undefined;
  /** Why the history is missing or out of date. */
  error?: ServerError | undefined;
  retry?: () => void;
}

/** Alerts shows the active alerts and the history. */
export function Alerts({ standing, history, error, retry }: AlertsProps) {
  const [all, setAll] = useState(false);
  const stands = ({ environmentId, since }: Past) => standing.get(environmentId)?.since === since;
  const before = (history ?? []).filter((past) => !stands(past));
  const now = [...standing.values()].sort((a, b) => Date.parse(b.since) - Date.parse(a.since));
  const shown = all ? before : before.slice(0, few);
  return (
    <Card title="Alerts" bare aside={<span className="small soft">History since the server started</span>}>
      <Failure error={error} retry={retry} />
      {history && standing.size === 0 && before.length === 0 && (
        <Empty title="No alerts since the server started">
          <p>A pool alerts when too few of its runners have been idle for too long.</p>
        </Empty>
      )}
      <ul className="pool-list" aria-label="Alerts, newest first">
        {now.map((alert) => (
          <Row key={alert.environmentId} alert={alert} stands />
        ))}
        {shown.map((past) => (
          <Row key={`${past.environmentId} ${past.state} ${past.since}`} alert={past} />
        ))}
      </ul>
      {before.length > shown.length && (
        <button type="button" className="button plain" onClick={() => setAll(true)}>
          Show all {count(before.length)}
        </button>
      )}
    </Card>
  );
}

/** Row shows one alert. stands: it is active now. */
function Row({ alert, stands = false }: { alert: Past; stands?: boolean }) {
  return (
    <li>
      {stands ? <Tag tone="bad">Active</Tag> : <Tag tone="quiet">{alert.state === "RESOLVED" ? "Resolved" : "Raised"}</Tag>}
      <Link className="break" href={`/environments/${encodeURIComponent(alert.environmentId)}`}>
        {alert.environmentId}
      </Link>
      <span className="small soft num">
        <time dateTime={alert.since} title={alert.since}>
          {moment(alert.since)}
        </time>
        {stands && `, for ${lasting(alert.since)}`}
      </span>
      <span className="small num">
        {count(alert.idle)} of {count(alert.size)} idle
      </span>
      <p className="reason small soft">
        <SafeText text={alert.reason} />
      </p>
    </li>
  );
}
