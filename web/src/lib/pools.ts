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
 * useEnvironments returns all environments with their pools, live. After a lost connection it queries all of them
 * again, so that environments deleted meanwhile disappear.
 */
export function useEnvironments() {
  const { data, error, reload } = useQuery(EnvironmentsQuery, {}, { every: 10_000 });
  const [changes, setChanges] = useState<{ since: object | undefined; pools: Map<string, Pool> }>({ since: undefined, pools: new Map() });

  // Each new revision causes one reload. A reload for every change of a busy pool would cancel the
  // request before its response, again and again.
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

/**
 * newest prefers a status of the subscription, unless it is the deletion of an environment that was created again.
 */
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

/** useAlerts returns the active alerts by environment. */
export function useAlerts(): ReadonlyMap<string, Alert> {
  const [alerts, setAlerts] = useState<ReadonlyMap<string, Alert>>(new Map());
  useFollow(
    AlertsSubscription,
    {},
    {
      begin: (again) => {
        if (again) setAlerts(new Map()); // the subscription begins with the active ones
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

/** rank orders pools by problem: alerts first, then pools with a reason, then filling ones. */
function rank({ pool }: Pick<EnvironmentRow, "pool">, alert: Alert | undefined): number {
  if (alert) return 0;
  if (pool.reason) return 1;
  return pool.idle < pool.size ? 2 : 3;
}

/** problemsFirst returns the rows whose id contains the text, ignoring case; problems come first, then by id. */
export function problemsFirst<Row extends Pick<EnvironmentRow, "id" | "pool">>(rows: readonly Row[], alerts: ReadonlyMap<string, Alert>, search = ""): Row[] {
  const text = search.trim().toLowerCase();
  return rows
    .filter(({ id }) => id.toLowerCase().includes(text))
    .sort((a, b) => rank(a, alerts.get(a.id)) - rank(b, alerts.get(b.id)) || (a.id < b.id ? -1 : 1));
}
