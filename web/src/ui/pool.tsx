import { Link } from "wouter";
import { count, plural } from "../lib/format";

export interface Counts {
  size: number;
  idle: number;
  starting: number;
  claimed: number;
  stopping: number;
  waiting: number;
}

const kinds = [
  ["idle", "idle"],
  ["claimed", "claimed"],
  ["starting", "starting"],
  ["stopping", "stopping"],
] as const;

/** PoolBar shows a pool's runners by state as shares of a bar, with a mark at the pool's size. */
export function PoolBar({ pool }: { pool: Counts }) {
  const all = pool.idle + pool.claimed + pool.starting + pool.stopping;
  const scale = Math.max(all, pool.size, 1);
  const words = [...kinds.filter(([kind]) => pool[kind] > 0).map(([kind, word]) => `${count(pool[kind])} ${word}`), `pool size ${count(pool.size)}`].join(", ");
  return (
    <div className="pool-bar" role="img" aria-label={words} title={words}>
      {kinds.map(([kind]) => (
        <span key={kind} className={kind} style={{ width: `${(pool[kind] / scale) * 100}%` }} />
      ))}
      <i style={{ left: `${(pool.size / scale) * 100}%` }} hidden={pool.size === 0 || pool.size >= scale} />
    </div>
  );
}

/** PoolCounts shows a pool's runners by state, without zeros, and links waiting claims to the queue. */
export function PoolCounts({ environment, pool }: { environment: string; pool: Counts }) {
  return (
    <div className="pool-counts num small">
      {kinds
        .filter(([kind]) => pool[kind] > 0)
        .map(([kind, word]) => (
          <span key={kind}>
            <i className={kind} />
            {count(pool[kind])} {word}
          </span>
        ))}
      {kinds.every(([kind]) => pool[kind] === 0) && <span className="none">No runners</span>}
      {pool.waiting > 0 && (
        <Link className="waiting" href={`/access/queue?environment=${encodeURIComponent(environment)}`}>
          {plural(pool.waiting, "claim waiting", "claims waiting")}
        </Link>
      )}
    </div>
  );
}

/** Meter shows the used share of a resource. When it is overcommitted, a mark shows the real amount. */
export function Meter({ label, used, of, text }: { label: string; used: number; of: number; text: string }) {
  const share = of > 0 ? used / of : 0;
  const over = share > 1;
  const words = over ? `${text} (${count(share)}×)` : text;
  return (
    <div className="meter">
      <div className="small">
        <div className="soft">{label}</div>
        <div className="num">{words}</div>
      </div>
      <div className="meter-bar" role="img" aria-label={`${label}: ${words}`} title={over ? "Overcommitted: more is allocated to runners than the machine has." : undefined}>
        <span style={{ width: `${Math.min(100, share * 100)}%` }} />
        <i style={{ left: `${100 / share}%` }} hidden={!over} />
      </div>
    </div>
  );
}
