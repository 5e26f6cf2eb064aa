import { useMemo } from "react";
import { ask } from "../../lib/ask";
import { graphql, type ResultOf, type VariablesOf } from "../../lib/graphql";
import { useFollow } from "../../lib/hooks";
import { pageSize, usePages, type Part, type Source } from "../../lib/pages";

const RunnerRowFragment = graphql(`
  fragment RunnerRow on Runner {
    id
    environmentId
    state
    createdAt
    claim {
      claimedAt
      expiresAt
      labels {
        name
        value
      }
    }
  }
`);
export type RunnerRow = ResultOf<typeof RunnerRowFragment>;

const RunnersQuery = graphql(
  `
    query Runners($environmentId: ID, $states: [RunnerState!], $heldBy: String, $first: Int, $after: String) {
      runners(environmentId: $environmentId, states: $states, heldBy: $heldBy, first: $first, after: $after, newestFirst: true) {
        nodes {
          ...RunnerRow
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
export type Filter = Pick<VariablesOf<typeof RunnersQuery>, "environmentId" | "states" | "heldBy">;

const ChangesSubscription = graphql(`
  subscription PoolChanges {
    poolStatus {
      environmentId
    }
  }
`);

const every = 5_000; // a claim that is renewed changes no pool
const largest = 1_000; // rows of one page

/** Runners, the latest first: each refresh asks for all of the pages that are loaded. */
export function runnersOf(filter: Filter): Source<RunnerRow> {
  const page = async (first: number, after: string | null, signal?: AbortSignal): Promise<Part<RunnerRow>> => {
    const { runners } = await ask(RunnersQuery, { ...filter, first, after }, signal);
    return { rows: runners.nodes, total: runners.totalCount, end: runners.pageInfo.endCursor, more: runners.pageInfo.hasNextPage };
  };
  const refresh = async (before: Part<RunnerRow>, signal: AbortSignal) => {
    const wanted = Math.max(pageSize, before.rows.length);
    let all = await page(Math.min(largest, wanted), null, signal);
    while (all.more && all.rows.length < wanted) {
      const next = await page(Math.min(largest, wanted - all.rows.length), all.end, signal);
      all = { ...next, rows: [...all.rows, ...next.rows], end: next.end ?? all.end };
    }
    return all;
  };
  return { page, refresh };
}

/** The runners that there are, live: whenever a pool's counts change they are asked for again. */
export function useRunners(filter: Filter) {
  const key = JSON.stringify(filter);
  const source = useMemo(() => runnersOf(JSON.parse(key) as Filter), [key]);
  const pages = usePages(source, every);
  useFollow(ChangesSubscription, {}, { begin: pages.again, next: pages.again });
  return pages;
}
