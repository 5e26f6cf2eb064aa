import { useState } from "react";
import { Link } from "wouter";
import { count } from "../../lib/format";
import { problemsFirst, type Alert, type EnvironmentRow } from "../../lib/pools";
import { Search, useFilter } from "../../ui/filters";
import { Card, Empty } from "../../ui/parts";
import { PoolCounts } from "../../ui/pool";
import { PoolReason, PoolState } from "../../ui/poolstate";

const few = 10;

export interface PoolsProps {
  environments: readonly EnvironmentRow[];
  alerts: ReadonlyMap<string, Alert>;
}

/** Pools lists all pools, those with a problem first, filtered by the text in the address. */
export function Pools({ environments, alerts }: PoolsProps) {
  const [search, setSearch] = useFilter("search");
  const [all, setAll] = useState(false);
  const found = problemsFirst(environments, alerts, search);
  const shown = all ? found : found.slice(0, few);
  return (
    <Card title="Pools" bare aside={<Search label="Part of an environment's id" placeholder="Environment" value={search} onChange={setSearch} />}>
      {found.length === 0 && (
        <Empty title={search ? "No matching pools" : "No pools yet"}>
          <p>{search ? "No environment's id contains this text." : "Each environment has a pool of runners."}</p>
        </Empty>
      )}
      <ul className="pool-list" aria-label="Pools, those with a problem first">
        {shown.map(({ id, pool }) => (
          <li key={id}>
            <PoolState pool={pool} alert={alerts.get(id)} />
            <Link className="break" href={`/environments/${encodeURIComponent(id)}`}>
              {id}
            </Link>
            {pool.idle < pool.size && (
              <span className="small soft num">
                {count(pool.idle)} of {count(pool.size)} idle
              </span>
            )}
            <PoolCounts environment={id} pool={pool} />
            <PoolReason pool={pool} alert={alerts.get(id)} />
          </li>
        ))}
      </ul>
      {found.length > shown.length && (
        <button type="button" className="button plain" onClick={() => setAll(true)}>
          Show all {count(found.length)} pools
        </button>
      )}
    </Card>
  );
}
