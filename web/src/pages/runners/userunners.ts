import { useMemo } from "react";
import { request } from "../../lib/request";
import { timesAt } from "../../lib/filter";
import { graphql, type ResultOf, type VariablesOf } from "../../lib/graphql";
import { useFollow } from "../../lib/hooks";
import { everyPage, usePages, type Part, type Source } from "../../lib/pages";

const RunnerRowFragment = graphql(`
  fragment RunnerRow on Runner {
    id
    tenant
    environmentId
    state
    message
    createdAt
    clusterUrl
    claim {
      claimedAt
      expiresAt
      holder
      labels {
        name
        value
      }
    }
  }
`);
/** RunnerRow is a runner with its cursor in the list. */
export type RunnerRow = ResultOf<typeof RunnerRowFragment> & { cursor: string };

const RunnersQuery = graphql(
  `
    query Runners($environmentId: ID, $states: [RunnerState!], $heldBy: String, $labels: [LabelFilterInput!], $from: Time, $to: Time, $first: Int, $after: String) {
      runners(environmentId: $environmentId, states: $states, heldBy: $heldBy, labels: $labels, from: $from, to: $to, first: $first, after: $after, newestFirst: true) {
        edges {
          cursor
          node {
            ...RunnerRow
          }
        }
        pageInfo {
          hasNextPage
          endCursor
        }
        totalCount
      }
    }
  `,
  [RunnerRowFragment],
);
export type Filter = Omit<VariablesOf<typeof RunnersQuery>, "first" | "after"> & { since?: number | null };

const ChangesSubscription = graphql(`
  subscription PoolChanges {
    poolStatus {
      environmentId
    }
  }
`);

const every = 5_000; // ms: renewed claims cause no pool event

/** runnersOf returns a Source of runners, newest first. Each refresh queries all loaded pages. */
export function runnersOf(filter: Filter): Source<RunnerRow> {
  const page = async (first: number, after: string | null, signal?: AbortSignal): Promise<Part<RunnerRow>> => {
    const { since, from, to, ...rest } = filter;
    const { runners } = await request(RunnersQuery, { ...rest, ...timesAt({ since, from: from as string, to: to as string }), first, after }, signal);
    return { rows: runners.edges.map(({ cursor, node }) => ({ ...node, cursor })), total: runners.totalCount, end: runners.pageInfo.endCursor, more: runners.pageInfo.hasNextPage };
  };
  return { page, refresh: everyPage(page) };
}

/** useRunners returns the runners, live: every change of a pool causes a refresh. */
export function useRunners(filter: Filter) {
  const key = JSON.stringify(filter);
  const source = useMemo(() => runnersOf(JSON.parse(key) as Filter), [key]);
  const pages = usePages(source, every);
  useFollow(ChangesSubscription, {}, { begin: pages.again, next: pages.again });
  return pages;
}
