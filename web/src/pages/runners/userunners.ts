import { useEffect, useMemo, useRef, useState } from "react";
import type { ServerError } from "../../lib/ask";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useFollow } from "../../lib/hooks";
import { link } from "../../lib/link";

const RunnerRowFragment = graphql(`
  fragment RunnerRow on Runner {
    id
    environmentId
    state
    createdAt
    clusterUrl
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

const RunnerEventsSubscription = graphql(
  `
    subscription RunnerEvents($environmentId: ID) {
      runnerEvents(environmentId: $environmentId) {
        runner {
          ...RunnerRow
        }
      }
    }
  `,
  [RunnerRowFragment],
);

const noneAfter = 1_500; // ms

/** All runners, of an environment or of all, youngest first. A burst of changes is shown at once. */
export function useRunners(environmentId: string): { runners: readonly RunnerRow[]; error: ServerError | undefined } {
  const [shown, setShown] = useState<ReadonlyMap<string, RunnerRow>>(new Map());
  const [error, setError] = useState<ServerError>();
  const known = useRef(new Map<string, RunnerRow>());
  const frame = useRef(0);
  const flush = () => {
    frame.current = 0;
    setShown(new Map(known.current));
  };
  const soon = () => {
    if (frame.current === 0) frame.current = requestAnimationFrame(flush);
  };
  const none = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(
    () => () => {
      cancelAnimationFrame(frame.current);
      clearTimeout(none.current);
    },
    [],
  );

  useFollow(
    RunnerEventsSubscription,
    { environmentId: environmentId || null },
    {
      // Every runner comes again; what doesn't is gone.
      begin: (again) => {
        known.current = new Map();
        setError(undefined);
        if (!again) return soon();
        // Where none is left, none comes to say so.
        clearTimeout(none.current);
        none.current = setTimeout(() => link.current() === "open" && soon(), noneAfter);
      },
      next: ({ runnerEvents: { runner } }) => {
        if (runner.state === "GONE") known.current.delete(runner.id);
        else known.current.set(runner.id, runner);
        soon();
      },
      failed: setError,
    },
  );
  const runners = useMemo(() => [...shown.values()].sort((a, b) => (a.id < b.id ? 1 : -1)), [shown]);
  return { runners, error };
}
