import { useCallback, useEffect, useRef, useState } from "react";
import { ask, type ServerError } from "../../lib/ask";
import { graphql, type ResultOf, type VariablesOf } from "../../lib/graphql";
import { OutcomeFragment } from "../../lib/outcome";

const ExecutionRowFragment = graphql(
  `
    fragment ExecutionRow on Execution {
      id
      environmentId
      runnerId
      command
      ...OutcomeParts
      marks {
        queuedAt
      }
    }
  `,
  [OutcomeFragment],
);
export type ExecutionRow = ResultOf<typeof ExecutionRowFragment>;

const ExecutionsQuery = graphql(
  `
    query Executions($runnerId: ID, $environmentId: ID, $states: [ExecutionState!], $first: Int, $after: String) {
      executions(runnerId: $runnerId, environmentId: $environmentId, states: $states, first: $first, after: $after, newestFirst: true) {
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

export type Filter = Pick<VariablesOf<typeof ExecutionsQuery>, "runnerId" | "environmentId" | "states">;

const pageSize = 100;
const every = 2_000;
const atMost = 20_000; // rows that are kept: a page can stay open for days
const atOnce = 10; // unfinished ones beyond the first page that are asked for one by one

interface Loaded {
  rows: readonly ExecutionRow[];
  total: number;
  end: string | null;
  more: boolean;
}

const nothing: Loaded = { rows: [], total: 0, end: null, more: false };

/** Puts newer answers into what is there: ids sort by time, so that the latest is first. */
export function merge(before: readonly ExecutionRow[], newer: readonly ExecutionRow[]): ExecutionRow[] {
  const all = new Map(before.map((row) => [row.id, row]));
  for (const row of newer) all.set(row.id, row);
  return [...all.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
}

/**
 * Executions, the latest first, page by page as they are wanted. The first page
 * is asked again all the time; where more came than fits in it, or than is kept,
 * it begins anew.
 */
export function useExecutions(filter: Filter) {
  const key = JSON.stringify(filter);
  const [state, setState] = useState<{ key: string; loaded: Loaded | undefined }>({ key, loaded: undefined });
  const [error, setError] = useState<ServerError>();
  const latest = useRef<Loaded>(nothing);
  const loading = useRef(false);

  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    latest.current = nothing;
    loading.current = false;
    const show = (loaded: Loaded) => {
      latest.current = loaded;
      setState({ key, loaded });
    };
    const refresh = async () => {
      try {
        const { executions } = await ask(ExecutionsQuery, { ...(JSON.parse(key) as Filter), first: pageSize }, stop.signal);
        const before = latest.current;
        const known = new Set(before.rows.map((row) => row.id));
        const first = { rows: executions.nodes, total: executions.totalCount, end: executions.pageInfo.endCursor, more: executions.pageInfo.hasNextPage };
        const meets = executions.nodes.some((row) => known.has(row.id));
        if (!meets || !executions.pageInfo.hasNextPage || before.rows.length > atMost) show(first);
        else {
          const there = new Set(executions.nodes.map((row) => row.id));
          const open = before.rows.filter((row) => row.state !== "FINISHED" && !there.has(row.id)).slice(0, atOnce);
          const again = await Promise.all(open.map(async ({ id }) => (await ask(OneQuery, { id }, stop.signal)).execution));
          const found = again.filter((row) => row !== null);
          show({ ...latest.current, rows: merge(merge(latest.current.rows, found), executions.nodes), total: executions.totalCount });
        }
        setError(undefined);
      } catch (failure) {
        if (!stop.signal.aborted) setError(failure as ServerError);
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void refresh(), document.visibilityState === "hidden" ? every * 10 : every);
    };
    void refresh();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key]);

  const more = useCallback(async () => {
    const { end, more: there } = latest.current;
    if (!there || loading.current) return;
    loading.current = true;
    const began = latest.current;
    try {
      const { executions } = await ask(ExecutionsQuery, { ...(JSON.parse(key) as Filter), first: pageSize * 5, after: end });
      if (latest.current.end === began.end) {
        const loaded = { rows: merge(latest.current.rows, executions.nodes), total: executions.totalCount, end: executions.pageInfo.endCursor ?? end, more: executions.pageInfo.hasNextPage };
        latest.current = loaded;
        setState({ key, loaded });
      }
    } catch (failure) {
      setError(failure as ServerError);
    } finally {
      loading.current = false;
    }
  }, [key]);

  const loaded = state.key === key ? state.loaded : undefined;
  return { rows: loaded?.rows ?? nothing.rows, total: loaded?.total ?? 0, loading: loaded === undefined, error, more };
}
