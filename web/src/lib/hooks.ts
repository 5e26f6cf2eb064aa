import type { TadaDocumentNode } from "gql.tada";
import { useCallback, useEffect, useEffectEvent, useRef, useState, useSyncExternalStore } from "react";
import { request, type ServerError } from "./request";
import { follow } from "./follow";
import { link, type LinkState } from "./link";

/** Query is the state of a query that a component shows. */
export interface Query<Result> {
  /** The latest data for the current variables. */
  data: Result | undefined;
  /** The error of the last request. */
  error: ServerError | undefined;
  loading: boolean;
  reload: () => void;
}

/**
 * useQuery sends a query when the component mounts, when the variables change, and every `every` ms (five times as
 * rarely on a hidden page). With `whileSeen` it pauses on a hidden page, and queries when the page is visible again.
 * `rest` loads what the first response lacks, for example later pages of a list.
 */
export function useQuery<Result, Variables>(
  document: TadaDocumentNode<Result, Variables>,
  variables: Variables,
  options: { every?: number; skip?: boolean; whileSeen?: boolean; rest?: (data: Result, signal: AbortSignal) => Promise<Result> } = {},
): Query<Result> {
  const { every, skip = false, whileSeen = false, rest } = options;
  const key = JSON.stringify(variables);
  const [round, setRound] = useState(0);
  const [state, setState] = useState<{ key: string; data?: Result; error?: ServerError; loading: boolean }>({ key, loading: !skip });
  const current = useEffectEvent(() => variables);

  useEffect(() => {
    if (skip) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        const first = await request(document, current(), stop.signal);
        const data = rest ? await rest(first, stop.signal) : first;
        setState({ key, data, loading: false });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((before) => ({ key, data: before.key === key ? before.data : undefined, error: error as ServerError, loading: false }));
      }
      if (every === undefined || stop.signal.aborted) return;
      if (whileSeen && hidden()) {
        window.document.addEventListener("visibilitychange", () => void load(), { once: true, signal: stop.signal });
      } else {
        timer = setTimeout(() => void load(), hidden() ? every * 5 : every);
      }
    };
    void load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [document, key, every, skip, whileSeen, rest, round]);

  const reload = useCallback(() => setRound((n) => n + 1), []);
  const same = state.key === key;
  return { data: same ? state.data : undefined, error: same ? state.error : undefined, loading: !same || state.loading, reload };
}

/** hidden reports whether the page is hidden, for example in a background tab. */
function hidden(): boolean {
  return window.document.visibilityState === "hidden";
}

/** useFollow follows a subscription while the component is mounted; see follow. */
export function useFollow<Result, Variables>(
  document: TadaDocumentNode<Result, Variables>,
  variables: Variables,
  on: { next: (data: Result) => void; begin?: (again: boolean) => void; end?: () => void; failed?: (error: ServerError) => void },
  options: { skip?: boolean } = {},
) {
  const key = JSON.stringify(variables);
  const current = useEffectEvent(() => variables);
  const next = useEffectEvent(on.next);
  const begin = useEffectEvent((again: boolean) => on.begin?.(again));
  const end = useEffectEvent(() => on.end?.());
  const failed = useEffectEvent((error: ServerError) => on.failed?.(error));
  const skip = options.skip ?? false;
  useEffect(() => {
    if (skip) return;
    return follow(document, {
      variables: () => current(),
      next: (data) => next(data),
      begin: (again) => begin(again),
      end: () => end(),
      failed: (error) => failed(error),
    });
  }, [document, key, skip]);
}

/** useLink returns the state of the shared connection, and renders again when it changes. */
export function useLink(): LinkState {
  return useSyncExternalStore(link.listen, link.current);
}

/**
 * Action is a call that the user starts. run returns undefined after an error, or during another
 * call.
 */
export interface Action<Args extends unknown[], Result> {
  run: (...args: Args) => Promise<Result | undefined>;
  busy: boolean;
  error: ServerError | undefined;
  clear: () => void;
}

/**
 * useShown returns a function that reports whether the component is still mounted, so that late replies are ignored.
 */
export function useShown(): () => boolean {
  const shown = useRef(true);
  useEffect(() => {
    shown.current = true;
    return () => {
      shown.current = false;
    };
  }, []);
  return useCallback(() => shown.current, []);
}

/** useAction wraps an action of the user: one call at a time, with its error. A call during another does nothing. */
export function useAction<Args extends unknown[], Result>(act: (...args: Args) => Promise<Result>): Action<Args, Result> {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ServerError>();
  const running = useRef(false);
  const shown = useShown();
  const latest = useRef(act);
  useEffect(() => {
    latest.current = act;
  });
  const run = useCallback(async (...args: Args) => {
    if (running.current) return undefined;
    running.current = true;
    setBusy(true);
    setError(undefined);
    try {
      return await latest.current(...args);
    } catch (failure) {
      if (shown()) setError(failure as ServerError);
      return undefined;
    } finally {
      running.current = false;
      if (shown()) setBusy(false);
    }
  }, [shown]);
  const clear = useCallback(() => setError(undefined), []);
  return { run, busy, error, clear };
}
