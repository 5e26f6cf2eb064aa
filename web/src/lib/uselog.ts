import { useCallback, useEffect, useRef, useState } from "react";
import { ServerError } from "./request";
import { follow } from "./follow";
import { graphql, type ResultOf } from "./graphql";
import { count } from "./format";
import { requestLines, asShown, Rows, textOfLine, type LinePage, type Range, type Stream, type Wanted } from "./loglines";
import { OutcomeFragment } from "./outcome";
import { useSearch, type Found } from "./usesearch";

const LogEventsSubscription = graphql(
  `
    subscription LogEvents($executionId: ID!, $after: Cursor) {
      executionEvents(executionId: $executionId, after: $after) {
        __typename
        cursor
        ... on ExecutionFinished {
          execution {
            ...OutcomeParts
          }
        }
      }
    }
  `,
  [OutcomeFragment],
);
type Event = ResultOf<typeof LogEventsSubscription>["executionEvents"];
export type End = Extract<Event, { __typename: "ExecutionFinished" }>["execution"];

const showEvery = 100; // ms between updates while much is printed
const mostCopied = 10_000; // lines
const again = 1_000; // ms until a failed request is repeated

/** Log is an execution's output log by lines. Missing rows are loaded when they are shown. */
export interface Log {
  stream: Stream | undefined;
  rows: Rows;
  /** Changes whenever the rows change. */
  version: number;
  /** Whether the number of rows is known. */
  ready: boolean;
  started: boolean;
  end: End | undefined;
  error: ServerError | undefined;
  /** Reports which rows are shown, so that they are loaded. */
  show: (from: number, to: number) => void;
  /** Returns the row of the first line with at least this number. */
  find: (number: number) => Promise<number>;
  /** Returns the text of some or all lines; it throws for more than 10,000 lines. */
  read: (range?: Range) => Promise<string>;
}

/** SearchedLog is a log with the search and the choice of streams of its view. */
export interface SearchedLog {
  log: Log;
  /** The searched text. */
  wanted: string;
  found: Found;
  onWanted: (text: string) => void;
  onStream: (stream: Stream | undefined) => void;
}

/** useSearchedLog is useLog with a choice of streams and a search on the server. */
export function useSearchedLog(id: string | undefined): SearchedLog {
  const [stream, onStream] = useState<Stream>();
  const [wanted, onWanted] = useState("");
  const log = useLog(id, stream);
  const found = useSearch(id, stream, wanted, log.version);
  return { log, wanted, found, onWanted, onStream };
}

/** useLog loads the shown pages of an execution's output log and follows it. Without an id it has no lines. */
export function useLog(id: string | undefined, stream: Stream | undefined): Log {
  const [state, setState] = useState({ id, stream, rows: new Rows(), version: 0, ready: id === undefined, started: false, end: undefined as End | undefined, error: undefined as ServerError | undefined, refused: undefined as ServerError | undefined });
  const shown = useRef({ from: 0, to: 0, load: () => {} });

  useEffect(() => {
    const rows = new Rows();
    const stop = new AbortController();
    let cursor: string | null = null;
    let following: (() => void) | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let grown = false;
    let busy = false;
    let wait = false; // after a failed request
    let end: End | undefined;
    let refreshed = -showEvery; // when new output last caused a request
    setState((before) => ({ ...before, id, stream, rows, version: 0, ready: id === undefined, error: undefined, refused: undefined, ...(before.id === id ? {} : { started: false, end: undefined }) }));
    if (id === undefined) return;
    const show = (change: { ready?: boolean; started?: boolean; end?: End; error?: ServerError | undefined; refused?: ServerError } = {}) => {
      if (!stop.signal.aborted) setState((before) => (before.rows === rows ? { ...before, ...change, version: before.version + 1 } : before));
    };
    // The first output causes a request immediately; more output causes at most ten a second.
    const refresh = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        refreshed = performance.now();
        grown = true;
        void load();
      }, end ? 0 : refreshed + showEvery - performance.now());
    };

    // One request at a time: first the latest output, then shown rows that are missing.
    const load = async () => {
      if (busy || wait) return;
      busy = true;
      try {
        for (;;) {
          const { from, to } = shown.current;
          const row = rows.missing(from, to);
          const wanted: Wanted | undefined = grown ? { last: true } : row === undefined ? undefined : { skip: row };
          if (!wanted) break;
          const ended = end;
          if (grown) rows.outdate();
          grown = false;
          const page = await requestLines(id, wanted, stream, stop.signal);
          rows.put(page);
          rows.trim(from, to);
          if (!page.counted) grown = true;
          show({ ready: true, error: undefined, ...(page.total > 0 && { started: true }), ...(ended && { end: ended, started: true }) });
          // Without output, events begin with the start. One stream's total doesn't say whether there is output.
          if (page.counted) following ??= subscribe(stream === undefined && page.total === 0 ? null : page.cursor);
          if ("skip" in wanted && page.lines.length === 0) break;
        }
      } catch (failure) {
        if (stop.signal.aborted) return;
        const error = failure as ServerError;
        show({ error: error.retryable ? undefined : error, ...(end && { end, started: true }) });
        if (error.retryable) {
          grown = wait = true;
          setTimeout(() => ((wait = false), void load()), again);
        }
      } finally {
        busy = false;
      }
    };

    const subscribe = (after: string | null) => {
      cursor = after;
      return follow(LogEventsSubscription, {
        variables: () => ({ executionId: id, after: cursor }),
        next: ({ executionEvents: event }) => {
          cursor = event.cursor;
          if (event.__typename === "ExecutionStarted") return show({ started: true });
          if (event.__typename === "ExecutionFinished") {
            end = event.execution;
            clearTimeout(timer);
            timer = undefined;
          }
          refresh();
        },
        failed: (refused) => show({ refused }), // no page clears it: no more events arrive
      });
    };

    shown.current.load = () => void load();
    grown = true;
    void load();
    return () => {
      shown.current.load = () => {};
      stop.abort();
      following?.();
      clearTimeout(timer);
    };
  }, [id, stream]);

  const show = useCallback((from: number, to: number) => {
    shown.current.from = from;
    shown.current.to = to;
    shown.current.load();
  }, []);
  const { rows } = state;
  const find = useCallback(
    async (number: number) => {
      if (id === undefined || stream === undefined) return number - 1;
      const page = await requestLines(id, { from: number }, stream);
      rows.put(page);
      return page.before;
    },
    [id, stream, rows],
  );
  const read = useCallback(
    async (range?: Range) => {
      const { from, to } = range ?? { from: 1, to: Infinity };
      const out: string[] = [];
      for (let next: number | null = from; id !== undefined && next !== null; ) {
        const page: LinePage = await requestLines(id, { from: next }, stream, undefined, 1_000);
        if (Math.min(page.total - page.before, to - next + 1) + out.length > mostCopied) throw new ServerError(`More than ${count(mostCopied)} lines can't be copied. Mark fewer lines by their numbers, or download all.`);
        const lines = page.lines.filter((line) => line.number >= next! && line.number <= to);
        out.push(...lines.map((line) => textOfLine(asShown(line))));
        next = page.more && lines.length === page.lines.length ? page.next : null;
      }
      return out.join("\n");
    },
    [id, stream],
  );
  return { ...state, error: state.refused ?? state.error, show, find, read };
}
