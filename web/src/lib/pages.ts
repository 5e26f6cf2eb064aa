import { useCallback, useEffect, useRef, useState } from "react";
import type { ServerError } from "./ask";
import { paced } from "./pace";

/** Rows from the beginning of a list, and how it goes on. */
export interface Part<Row> {
  rows: readonly Row[];
  /** Of the whole list, loaded or not. */
  total: number;
  /** The cursor of the last row. */
  end: string | null;
  more: boolean;
  /** What the server said beside the rows. */
  note?: ServerError | undefined;
}

/** Where rows come from: the latest first, by ids that sort by time. */
export interface Source<Row> {
  /** The page after a cursor; the first one without. */
  page: (first: number, after: string | null, signal?: AbortSignal) => Promise<Part<Row>>;
  /** The list as it is now, about as far as it was loaded before. */
  refresh: (before: Part<Row>, signal: AbortSignal) => Promise<Part<Row>>;
}

export const pageSize = 100;
const atOnce = 500; // rows with their labels: 1,000 cost more than one operation may

const nothing: Part<never> = { rows: [], total: 0, end: null, more: false };

/** A refresh that asks for all of the pages that are loaded. */
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

/** Puts newer answers into what is there. */
export function merge<Row extends { id: string }>(before: readonly Row[], newer: readonly Row[]): Row[] {
  const all = new Map(before.map((row) => [row.id, row]));
  for (const row of newer) all.set(row.id, row);
  return [...all.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
}

/**
 * Rows of a list that is too long to be asked for at once, page by page as they
 * are wanted. What is there is asked again each `every` ms, and soon after
 * `again`. A source must stay the same while it has the same rows.
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
        if (latest.current !== before) return pace.current?.soon(); // more came meanwhile, which isn't in this
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
      if (latest.current.end !== before.end) return; // it was another list, or ended elsewhere
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
