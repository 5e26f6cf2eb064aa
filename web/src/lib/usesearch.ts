import { useEffect, useRef, useState } from "react";
import { request, type ServerError } from "./request";
import { graphql, type ResultOf } from "./graphql";
import { noExecution, type Stream } from "./loglines";

const SearchQuery = graphql(`
  query SearchLines($id: ID!, $from: Int64, $stream: OutputStream, $containing: String!) {
    execution(id: $id) {
      lines(from: $from, maxLines: 1000, stream: $stream, containing: $containing) {
        lines {
          number
        }
        more
        next
      }
    }
  }
`);

/** Found is the result of a search so far. */
export interface Found {
  /** The numbers of the matching lines found so far. */
  numbers: readonly number[];
  /** Whether the search is complete. */
  done: boolean;
  /** Whether there are more matches than the limit of 10,000. */
  many: boolean;
  error: ServerError | undefined;
}

const mostHits = 10_000;
const typing = 250; // ms after the last key
const again = 1_000; // ms until a failed request is repeated
const nothing: Found = { numbers: [], done: true, many: false, error: undefined };

/** useSearch searches an output log on the server. It continues when `version` changes, because of new output. */
export function useSearch(id: string | undefined, stream: Stream | undefined, text: string, version: number): Found {
  const key = JSON.stringify([id, stream, text]);
  const [state, setState] = useState({ key, found: nothing });
  const resume = useRef(() => {});
  useEffect(() => {
    if (id === undefined || text === "") return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    let busy = true; // until the timer
    let from: number | null = 1;
    let numbers: readonly number[] = [];
    const search = async () => {
      if (busy || from === null || numbers.length >= mostHits) return;
      busy = true;
      try {
        for (let done = false; !done; ) {
          const answer: ResultOf<typeof SearchQuery> = await request(SearchQuery, { id, from, stream: stream ?? null, containing: text }, stop.signal);
          if (!answer.execution) throw noExecution();
          const { lines, more, next } = answer.execution.lines;
          const last = numbers.at(-1) ?? 0;
          numbers = [...numbers, ...lines.map((line) => line.number).filter((number) => number > last)];
          from = next;
          const many = numbers.length >= mostHits && more;
          done = many || !more || next === null;
          setState({ key, found: { numbers, done, many, error: undefined } });
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        const refused = error as ServerError;
        if (refused.retryable) timer = setTimeout(() => void search(), again);
        else setState({ key, found: { numbers, done: true, many: false, error: refused } });
      } finally {
        busy = false;
      }
    };
    timer = setTimeout(() => {
      busy = false;
      void search();
    }, typing);
    resume.current = () => void search();
    return () => {
      resume.current = () => {};
      stop.abort();
      clearTimeout(timer);
    };
  }, [key]);
  useEffect(() => resume.current(), [version]);
  if (id === undefined || text === "") return nothing;
  return state.key === key ? state.found : { ...nothing, done: false };
}
