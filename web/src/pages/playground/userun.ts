import { useCallback, useEffect, useRef, useState } from "react";
import type { ServerError } from "../../lib/request";
import { store } from "../../lib/store";
import type { Program } from "./program";
import { Run, type Phase } from "./run";
import { server } from "./server";

const key = "rockpool.playground.run"; // in the tab's storage: it survives a reload and is copied with the tab
const page = String(performance.timeOrigin); // identifies this page load

/** State is what the page shows of the current run. */
interface State {
  /** Counts the runs. */
  number: number;
  environment: string;
  phase: Phase | undefined;
  /** Whether the program has ended. */
  over: boolean;
  stopping: boolean;
  /** Why stopping failed. */
  stopError: ServerError | undefined;
}

const fresh = { phase: undefined, over: false, stopping: false, stopError: undefined };

/**
 * useRun is the run of this tab, if any. A new run stops the one before if this page started it, because other pages
 * may show the same one. Leaving the page stops a run that hasn't started. Without `resumes` an earlier run isn't shown
 * and continues.
 */
export function useRun(resumes = true) {
  const current = useRef<Run>(undefined);
  const own = useRef(true);
  const [state, setState] = useState<State>({ number: 0, environment: "", ...fresh });

  const make = useCallback((environment: string, by = page) => {
    const run: Run = new Run(server, (phase) => {
      if (current.current !== run) return;
      if (phase.at === "started") store(sessionStorage, key, JSON.stringify([phase.executionId, phase.runnerId, by]));
      setState((before) => ({ ...before, phase }));
    });
    current.current = run;
    setState((before) => ({ number: before.number + 1, environment, ...fresh }));
    return run;
  }, []);

  useEffect(() => {
    if (!resumes) sessionStorage.removeItem(key);
    const before = stored();
    if (before) {
      const [executionId, runnerId, by] = before;
      own.current = by === page;
      make("", by).resume(executionId, runnerId);
    }
    return () => {
      if (!current.current?.started) void current.current?.stop();
    };
  }, [make, resumes]);

  const stop = useCallback(async () => {
    const run = current.current;
    const show = (change: Partial<State>) => {
      if (run === current.current) setState((before) => ({ ...before, ...change })); // otherwise the page shows another run
    };
    show({ stopping: true, stopError: undefined });
    await run?.stop().catch((stopError: ServerError) => show({ stopError }));
    show({ stopping: false });
  }, []);
  const run = useCallback(
    (program: Program) => {
      if (own.current) void current.current?.stop().catch(() => {}); // on failure its time limit ends it
      own.current = true;
      sessionStorage.removeItem(key);
      void make(program.environment).begin(program);
    },
    [make],
  );
  /** Called when the program has ended. */
  const ended = useCallback(() => {
    setState((before) => ({ ...before, over: true }));
    current.current?.release().catch(() => {}); // on failure the inactivity timeout ends the runner
  }, []);
  /** Called when the server no longer has the execution. */
  const forget = useCallback(() => {
    sessionStorage.removeItem(key);
    current.current = undefined;
    setState((before) => ({ ...before, phase: undefined }));
  }, []);
  const { over, ...shown } = state;
  const at = state.phase?.at;
  const underWay = at === "preparing" || at === "waiting" || (at === "started" && !over);
  return { ...shown, underWay, run, stop, ended, forget };
}

/** stored returns the tab's run: its execution, its runner, and the page load that started it. */
function stored(): [string, string, string] | undefined {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(key) ?? "null");
    return Array.isArray(value) && value.length === 3 && value.every((one) => typeof one === "string") ? (value as [string, string, string]) : undefined;
  } catch {
    return undefined;
  }
}
