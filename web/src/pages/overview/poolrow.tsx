import { Link } from "wouter";
import { duration, plural } from "../../lib/format";
import type { Alert, EnvironmentRow } from "../../lib/pools";
import { Owner } from "../../ui/owner";
import { slotsFor, Spark } from "../../ui/chart";
import { PoolBar, PoolCounts } from "../../ui/pool";
import { PoolReason, PoolState } from "../../ui/poolstate";

/** PoolRow shows one environment with the state of its pool. */
export function PoolRow({ environment, alert, tenant = false }: { environment: EnvironmentRow; alert: Alert | undefined; tenant?: boolean }) {
  const { pool, claimStats: claims, poolHistory: history } = environment;
  const slots = slotsFor(history.idle.length);
  return (
    <article className="pool-row">
      <div className="state">
        <PoolState pool={pool} alert={alert} />
      </div>
      <div className="name stack tight">
        <Link href={`/environments/${encodeURIComponent(environment.id)}`} className="break">
          {environment.id}
        </Link>
        {tenant && (
          <span className="small soft">
            Tenant <Owner tenant={environment.tenant} shared={environment.shared} />
          </span>
        )}
        <span className="soft small clip">
          {environment.image === "host" ? "host programs" : environment.image}
        </span>
      </div>
      <div className="pool stack tight">
        <PoolBar pool={pool} />
        <PoolCounts environment={environment.id} pool={pool} />
      </div>
      <div className="claims small soft num">
        {claims.claimed > 0 && (
          <>
            {plural(claims.claimed, "claim")}, {Math.floor((claims.warm / claims.claimed) * 100)} % warm
            <br />
            {duration(claims.durations.p50Ms)}, p99 {duration(claims.durations.p99Ms)}
          </>
        )}
      </div>
      <div className="trends">
        {history.idle.some((n) => n > 0) && <Trend name="Idle" values={history.idle} slots={slots} />}
        {history.claims.some((n) => n > 0) && <Trend name="Claims" values={perMinute(history.claims, history.stepSeconds)} slots={(slots * history.stepSeconds) / 60} />}
      </div>
      <PoolReason pool={pool} alert={alert} />
    </article>
  );
}

/** perMinute sums values to minutes that end now. */
export function perMinute(values: readonly number[], stepSeconds: number): number[] {
  const steps = Math.max(1, Math.round(60 / stepSeconds));
  const out: number[] = [];
  for (let end = values.length; end > 0; end -= steps) {
    out.unshift(values.slice(Math.max(0, end - steps), end).reduce((sum, value) => sum + value, 0));
  }
  return out;
}

/** Trend is a small chart of recent values, with the latest in its label. */
function Trend({ name, values, slots }: { name: string; values: readonly number[]; slots: number }) {
  const now = values.at(-1) ?? 0;
  const label = name === "Idle" ? `Idle runners over time, now ${now}` : `Claims per minute over time, now ${now}`;
  return (
    <div title={label}>
      <span className="small soft">{name === "Idle" ? "Idle" : "Claims/min"}</span>
      <Spark values={values} slots={slots} label={label} />
    </div>
  );
}
