import { useActivity } from "../lib/activity";
import { lasting } from "../lib/format";
import type { Alert, Pool } from "../lib/pools";
import { Tag } from "./parts";
import { SafeText } from "./safetext";

export interface PoolStateProps {
  pool: Pool;
  alert: Alert | undefined;
}

/** PoolState shows a pool's state. A draining cluster's pools are empty on purpose, so that is no problem. */
export function PoolState({ pool, alert }: PoolStateProps) {
  const draining = useActivity().data?.draining;
  if (draining) return pool.claimed + pool.stopping > 0 ? <Tag tone="busy">Draining</Tag> : <Tag tone="quiet">Drained</Tag>;
  if (alert) return <Tag tone="bad">{alert.state === "RELOADING" ? "Too few idle; checking again" : "Too few idle"}</Tag>;
  if (pool.reason) return <Tag tone="warn">Not filling</Tag>;
  if (pool.size === 0) return <Tag tone="quiet">On demand</Tag>;
  if (pool.idle >= pool.size) return <Tag tone="good">Ready</Tag>;
  return <Tag tone="busy">Filling</Tag>;
}

/** PoolReason says why a pool has too few runners. */
export function PoolReason({ pool, alert }: PoolStateProps) {
  const draining = useActivity().data?.draining;
  const reason = alert?.reason || pool.reason;
  if (draining || !reason) return null;
  return (
    <p className="reason small soft">
      {alert && <>Too few idle for {lasting(alert.since)}: </>}
      <SafeText text={reason} />
    </p>
  );
}
