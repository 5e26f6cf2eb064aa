import { useEffect, useState } from "react";
import type { ServerError } from "./ask";
import { follow } from "./follow";
import { graphql, type ResultOf } from "./graphql";
import { Output } from "./output";
import { OutcomeFragment } from "./outcome";

const EventsSubscription = graphql(
  `
    subscription ExecutionEvents($executionId: ID!, $after: Cursor) {
      executionEvents(executionId: $executionId, after: $after) {
        __typename
        cursor
        ... on ExecutionStarted {
          at
        }
        ... on ExecutionOutput {
          stream
          text
        }
        ... on ExecutionOutputLost {
          bytes
          cause
        }
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
type Event = ResultOf<typeof EventsSubscription>["executionEvents"];
export type End = Extract<Event, { __typename: "ExecutionFinished" }>["execution"];

const showEvery = 80; // ms: a flood is shown a dozen times a second

export interface Followed {
  output: Output;
  version: number;
  started: boolean;
  end: End | undefined;
  error: ServerError | undefined;
}

/** Follows an execution from its beginning; a lost connection leaves no gap and no repetition. */
export function useOutput(executionId: string | undefined): Followed {
  const [state, setState] = useState<Followed>(() => ({ output: new Output(), version: 0, started: false, end: undefined, error: undefined }));
  useEffect(() => {
    if (executionId === undefined) return;
    const output = new Output();
    let cursor: string | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    setState({ output, version: 0, started: false, end: undefined, error: undefined });
    const show = (change: Partial<Followed> = {}) => {
      clearTimeout(timer);
      timer = undefined;
      output.flush();
      setState((before) => (before.output === output ? { ...before, ...change, version: before.version + 1 } : before));
    };
    const stop = follow(EventsSubscription, {
      variables: () => ({ executionId, after: cursor }),
      next: ({ executionEvents: event }) => {
        cursor = event.cursor;
        switch (event.__typename) {
          case "ExecutionStarted":
            show({ started: true });
            break;
          case "ExecutionOutput":
            output.push(event.stream, event.text);
            timer ??= setTimeout(show, showEvery);
            break;
          case "ExecutionOutputLost":
            output.lost(event.bytes, event.cause);
            show();
            break;
          case "ExecutionFinished":
            show({ end: event.execution, started: true });
        }
      },
      failed: (error) => show({ error }),
    });
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [executionId]);
  return state;
}
