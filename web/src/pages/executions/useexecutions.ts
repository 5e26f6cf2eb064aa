import { useMemo } from "react";
import { request, ServerError } from "../../lib/request";
import { timesAt } from "../../lib/filter";
import { graphql, type ResultOf, type VariablesOf } from "../../lib/graphql";
import { OutcomeFragment } from "../../lib/outcome";
import { everyPage, pageSize, usePages, type Part, type Source } from "../../lib/pages";

const ExecutionRowFragment = graphql(
  `
    fragment ExecutionRow on Execution {
      id
      tenant
      environmentId
      runnerId
      commandLine
      labels {
        name
        value
      }
      ...OutcomeParts
      timestamps {
        queuedAt
      }
    }
  `,
  [OutcomeFragment],
);
export type ExecutionRow = ResultOf<typeof ExecutionRowFragment>;

const ExecutionsQuery = graphql(
  `
    query Executions(
      $runnerId: ID
      $environmentId: ID
      $states: [ExecutionState!]
      $outcomes: [Outcome!]
      $failed: Boolean
      $labels: [LabelFilterInput!]
      $text: String
      $from: Time
      $to: Time
      $first: Int
      $after: String
    ) {
      executions(
        runnerId: $runnerId
        environmentId: $environmentId
        states: $states
        outcomes: $outcomes
        failed: $failed
        labels: $labels
        text: $text
        from: $from
        to: $to
        first: $first
        after: $after
        newestFirst: true
      ) {
        nodes {
          ...ExecutionRow
        }
        pageInfo {
          hasNextPage
          endCursor
        }
        totalCount
      }
    }
  `,
  [ExecutionRowFragment],
);

const OneQuery = graphql(
  `
    query ExecutionAgain($id: ID!) {
      execution(id: $id) {
        ...ExecutionRow
      }
    }
  `,
  [ExecutionRowFragment],
);

export type Filter = Omit<VariablesOf<typeof ExecutionsQuery>, "first" | "after"> & { since?: number | null };

const every = 2_000;
const atMost = 20_000; // rows kept in memory: a page can stay open for days
const atOnce = 10; // unfinished executions beyond the first page that are queried one by one

/**
 * executionsOf returns a Source of executions, newest first. Ended executions never change, so a refresh queries the
 * first page and at most 10 unfinished executions beyond it. If more new rows came than a page holds, or more than
 * 20,000 are loaded, the list starts again from the first page. With a filter by state or outcome a refresh queries all
 * loaded pages.
 */
export function executionsOf(filter: Filter): Source<ExecutionRow> {
  const page = async (first: number, after: string | null, signal?: AbortSignal): Promise<Part<ExecutionRow>> => {
    const { since, from, to, ...rest } = filter;
    const { executions } = await request(ExecutionsQuery, { ...rest, ...timesAt({ since, from: from as string, to: to as string }), first, after }, signal);
    return { rows: executions.nodes, total: executions.totalCount, end: executions.pageInfo.endCursor, more: executions.pageInfo.hasNextPage };
  };
  if (filter.states?.length || filter.outcomes?.length || filter.failed != null) return { page, refresh: everyPage(page) };
  const refresh = async (before: Part<ExecutionRow>, signal: AbortSignal) => {
    const first = await page(pageSize, null, signal);
    const known = new Set(before.rows.map((row) => row.id));
    const meets = first.rows.some((row) => known.has(row.id));
    if (!meets || !first.more || before.rows.length > atMost) return first;
    const beyond = before.rows.filter((row) => row.id < first.rows.at(-1)!.id);
    const open = beyond.filter((row) => row.state !== "FINISHED").slice(0, atOnce);
    const again = new Map(await Promise.all(open.map(async ({ id }) => [id, await one(id, signal)] as const)));
    const kept = beyond.map((row) => (again.has(row.id) ? again.get(row.id)! : row)).filter((row) => row !== null);
    return { ...before, rows: [...first.rows, ...kept], total: first.total };
  };
  return { page, refresh };
}

/** one queries an execution again; null if the server no longer keeps it. */
async function one(id: string, signal: AbortSignal): Promise<ExecutionRow | null> {
  try {
    return (await request(OneQuery, { id }, signal)).execution;
  } catch (error) {
    if (error instanceof ServerError && error.code === "EXECUTION_NOT_FOUND") return null;
    throw error;
  }
}

/** useExecutions returns the kept executions, live. */
export function useExecutions(filter: Filter) {
  const key = JSON.stringify(filter);
  const source = useMemo(() => executionsOf(JSON.parse(key) as Filter), [key]);
  return usePages(source, every);
}
