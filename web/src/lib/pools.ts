import { useRef, useState } from "react";
import { graphql, type ResultOf } from "./graphql";
import { useFollow, useQuery } from "./hooks";

export const PoolFragment = graphql(`
  fragment Pool on PoolStatus {
    environmentId
    revision
    size
    idle
    starting
    claimed
    stopping
    waiting
    reason
    deleted
    image {
      digest
      state
      layers
      layersDone
      bytes
      bytesDone
      reason
    }
  }
`);
export type Pool = ResultOf<typeof PoolFragment>;

const EnvironmentsQuery = graphql(
  `
    query Environments {
      environments {
        id
        tenant
        shared
        revision
        image
        isolation
        claimStats {
          claimed
          warm
          durations {
            p50Ms
            p99Ms
          }
        }
        poolHistory {
          stepSeconds
          idle
          claims
        }
        pool {
          ...Pool
        }
      }
    }
  `,
  [PoolFragment],
);
export type EnvironmentRow = ResultOf<typeof EnvironmentsQuery>["environments"][number];

const PoolStatusSubscription = graphql(
  `
    subscription PoolStatus($environmentId: ID) {
      poolStatus(environmentId: $environmentId) {
        ...Pool
      }
    }
  `,
  [PoolFragment],
);

/**
 * All environments with their pools, live. After a lost connection all of it is
 * asked anew, so that what was deleted meanwhile goes.
 */
export function useEnvironments() {
  const { data, error, reload } = useQuery(EnvironmentsQuery, {}, { every: 10_000 });
  const [changes, setChanges] = useState<{ since: object | undefined; pools: Map<string, Pool> }>({ since: undefined, pools: new Map() });

  // A revision is asked for once: asking again for each change of a busy pool
  // would give up the asking before it is answered, again and again.
  const asked = useRef(new Map<string, number>());

  useFollow(
    PoolStatusSubscription,
    {},
    {
      begin: (again) => {
        if (again) reload();
      },
      next: ({ poolStatus: pool }) => {
        setChanges((before) => {
          const pools = new Map(before.pools);
          pools.set(pool.environmentId, pool);
          return { ...before, pools };
        });
        const known = data?.environments.find((environment) => environment.id === pool.environmentId);
        if (pool.deleted) asked.current.delete(pool.environmentId);
        else if (data && known?.revision !== pool.revision && asked.current.get(pool.environmentId) !== pool.revision) {
          asked.current.set(pool.environmentId, pool.revision);
          reload();
        }
      },
    },
  );

  const environments = data?.environments
    .map((environment) => ({ ...environment, pool: newest(environment.pool, changes.pools.get(environment.id)) }))
    .filter((environment) => !environment.pool.deleted);
  return { environments, error, reload };
}

/** A status of the subscription is newer than one that was asked for, unless it is of an environment that was put anew since. */
function newest(asked: Pool, told: Pool | undefined): Pool {
  return told && !(told.deleted && !asked.deleted && asked.revision < told.revision) ? told : asked;
}

const AlertsSubscription = graphql(`
  subscription Alerts($environmentId: ID) {
    poolAlerts(environmentId: $environmentId) {
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
export type Alert = ResultOf<typeof AlertsSubscription>["poolAlerts"];

/** The alerts that stand, by environment. */
export function useAlerts(): ReadonlyMap<string, Alert> {
  const [alerts, setAlerts] = useState<ReadonlyMap<string, Alert>>(new Map());
  useFollow(
    AlertsSubscription,
    {},
    {
      begin: (again) => {
        if (again) setAlerts(new Map()); // those that stand come first
      },
      next: ({ poolAlerts: alert }) =>
        setAlerts((before) => {
          const after = new Map(before);
          if (alert.state === "RESOLVED") after.delete(alert.environmentId);
          else after.set(alert.environmentId, alert);
          return after;
        }),
    },
  );
  return alerts;
}

/** How much is wrong with a pool: the more, the smaller. */
function rank({ pool }: Pick<EnvironmentRow, "pool">, alert: Alert | undefined): number {
  if (alert) return 0;
  if (pool.reason) return 1;
  return pool.idle < pool.size ? 2 : 3;
}

/** Those whose id has a text, upper and lower case alike; what is wrong comes first, then by id. */
export function problemsFirst<Row extends Pick<EnvironmentRow, "id" | "pool">>(rows: readonly Row[], alerts: ReadonlyMap<string, Alert>, search = ""): Row[] {
  const text = search.trim().toLowerCase();
  return rows
    .filter(({ id }) => id.toLowerCase().includes(text))
    .sort((a, b) => rank(a, alerts.get(a.id)) - rank(b, alerts.get(b.id)) || (a.id < b.id ? -1 : 1));
}
