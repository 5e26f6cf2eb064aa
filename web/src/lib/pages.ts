import { useCallback, useEffect, useRef, useState } from "react";
import type { ServerError } from "./request";
import { paced } from "./pace";

/** Part is the loaded beginning of a list, with the cursor to continue. */
export interface Part<Row> {
  rows: readonly Row[];
  /** Of the whole list, loaded or not. */
  total: number;
  /** The cursor of the last row. */
  end: string | null;
  more: boolean;
  /** An error that the server returned together with the rows. */
  note?: ServerError | undefined;
}

/** Source loads rows, newest first. Their ids sort by time. */
export interface Source<Row> {
  /** Loads the page after a cursor; null loads the first page. */
  page: (first: number, after: string | null, signal?: AbortSignal) => Promise<Part<Row>>;
  /** Loads the list again, about as far as it was loaded before. */
  refresh: (before: Part<Row>, signal: AbortSignal) => Promise<Part<Row>>;
}

export const pageSize = 100;
const atOnce = 500; // rows with their labels: 1,000 cost more than one operation may

/** nothing is a list of which no page was loaded yet. */
const nothing: Part<never> = { rows: [], total: 0, end: null, more: false };

/** everyPage returns a refresh that loads all loaded pages again. */
export function everyPage<Row>(page: Source<Row>["page"]): Source<Row>["refresh"] {
  return async (before, signal) => {
    const wanted = Math.max(pageSize, before.rows.length);
    let all = await page(Math.min(atOnce, wanted), null, signal);
    while (all.more && all.rows.length < wanted) {
      const next = await page(Math.min(atOnce, wanted - all.rows.length), all.end, signal);
      all = { ...next, rows: [...all.rows, ...next.rows], end: next.end ?? all.end };
    }
    return all;
  };
}

/** merge replaces and adds rows by id, and sorts them newest first. */
export function merge<Row extends { id: string }>(before: readonly Row[], newer: readonly Row[]): Row[] {
  const all = new Map(before.map((row) => [row.id, row]));
  for (const row of newer) all.set(row.id, row);
  return [...all.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
}

/**
 * usePages loads a long list page by page: `more` loads the next page. It refreshes the loaded rows every `every` ms,
 * and soon after `again`. The source must keep its identity as long as its filters are the same.
 */
export function usePages<Row extends { id: string }>(source: Source<Row>, every: number) {
  const [state, setState] = useState<{ source: Source<Row>; loaded?: Part<Row>; error?: ServerError }>({ source });
  const latest = useRef<Part<Row>>(nothing);
  const loading = useRef(false);
  const pace = useRef<ReturnType<typeof paced>>(undefined);

  useEffect(() => {
    const stop = new AbortController();
    latest.current = nothing;
    loading.current = false;
    const refresh = async () => {
      const before = latest.current;
      try {
        const loaded = await source.refresh(before, stop.signal);
        if (stop.signal.aborted) return;
        if (latest.current !== before) return pace.current?.soon(); // another page was loaded meanwhile, which this refresh lacks
        latest.current = loaded;
        setState({ source, loaded });
      } catch (failure) {
        if (!stop.signal.aborted) setState((old) => ({ ...(old.source === source ? old : { source }), error: failure as ServerError }));
      }
    };
    pace.current = paced(refresh, every);
    return () => {
      stop.abort();
      pace.current?.stop();
    };
  }, [source, every]);

  const more = useCallback(async () => {
    const before = latest.current;
    if (!before.more || loading.current) return;
    loading.current = true;
    try {
      const next = await source.page(atOnce, before.end);
      if (latest.current.end !== before.end) return; // another list, or a refresh changed its end
      const loaded = { ...next, rows: merge(latest.current.rows, next.rows), end: next.end ?? before.end };
      latest.current = loaded;
      setState({ source, loaded });
    } catch (failure) {
      setState((old) => ({ ...(old.source === source ? old : { source }), error: failure as ServerError }));
    } finally {
      loading.current = false;
    }
  }, [source]);

  const again = useCallback(() => pace.current?.soon(), []);
  const { loaded, error } = state.source === source ? state : { loaded: undefined, error: undefined };
  return { ...(loaded ?? nothing), hasMore: loaded?.more ?? false, loading: loaded === undefined, error, more, again };
}
