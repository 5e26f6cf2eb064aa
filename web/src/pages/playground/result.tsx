import { useEffect, useState } from "react";
import { Link } from "wouter";
import { ServerError } from "../../lib/request";
import { useFollow } from "../../lib/hooks";
import { sentence, verdict, type OutcomeParts } from "../../lib/outcome";
import { useSearchedLog } from "../../lib/uselog";
import { LogView, NothingPrinted } from "../../ui/logview";
import { Offer } from "../../ui/offer";
import { Card, Empty, Failure, Tag, type Tone } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";
import { DownloadButton } from "../execution/download";
import { ShareButton } from "../execution/sharebutton";
import type { Phase } from "./run";
import { WaitedForSubscription, whyWaiting, type WaitedFor } from "./waiting";

const pending: OutcomeParts = { state: "PENDING", outcome: null, exitCode: null, signal: null, goneReason: null, message: null, hint: null, comparison: null, usage: null };

export interface ResultProps {
  /** Whether the program was loaded from a link. */
  linked: boolean;
  phase: Phase | undefined;
  /** The environment in which the program runs. */
  environment: string;
  /** Called when the program has ended. */
  onEnd: () => void;
  /** Called when the server no longer has the execution. */
  onGone: () => void;
}

/** Result shows a run: why it waits, its output log and its outcome. */
export function Result({ linked, phase, environment, onEnd, onGone }: ResultProps) {
  const id = phase?.at === "started" ? phase.executionId : undefined;
  const searched = useSearchedLog(id);
  const { end, error, started, stream } = searched.log;
  const gone = error?.code === "EXECUTION_NOT_FOUND";
  useEffect(() => {
    if (end) onEnd();
    if (gone) onGone();
  }, [end, gone, onEnd, onGone]);
  const pool = usePool(environment, phase?.at === "waiting");
  const { tone, text, detail } = stateOf(phase, end ?? { ...pending, state: started ? "RUNNING" : "PENDING" }, pool, linked);
  return (
    <Card title="Output" bare aside={id && <Link href={`/executions/${id}`}>Open execution</Link>}>
      <div className="card-head row verdict" aria-live="polite">
        {text && <Tag tone={tone}>{text}</Tag>}
        <span className="small grow">
          <SafeText text={detail} />
        </span>
        {id && (
          <Offer to="use">
            <ShareButton id={id} small />
          </Offer>
        )}
      </div>
      <Failure error={gone ? undefined : (failureOf(phase) ?? error)} />
      <LogView
        {...searched}
        label="Output log"
        tools={id && <DownloadButton id={id} />}
        height="20rem"
        nothing={id ? <NothingPrinted on={stream} ended={end !== undefined} /> : <Empty title="Output appears here" />}
      />
    </Card>
  );
}

/** usePool follows the pool in which the run waits for a runner. */
function usePool(environmentId: string, wanted: boolean): WaitedFor | undefined {
  const [pool, setPool] = useState<WaitedFor>();
  useFollow(WaitedForSubscription, { environmentId }, { next: ({ poolStatus }) => setPool(poolStatus) }, { skip: !wanted });
  return pool;
}

/** failureOf returns why a run failed, or why its input is incomplete. */
export function failureOf(phase: Phase | undefined): ServerError | undefined {
  if (phase?.at === "failed") return phase.error;
  if (phase?.at !== "started" || !phase.unfed) return undefined;
  const { message, code } = phase.unfed;
  return new ServerError(`The program didn't get all of its standard input: ${message}`, code);
}

/** stateOf returns a run's state as a short text, its tone and a sentence. */
export function stateOf(phase: Phase | undefined, execution: OutcomeParts, pool: WaitedFor | undefined, linked = false): { tone: Tone; text: string; detail: string } {
  switch (phase?.at) {
    case undefined:
      return { tone: "quiet", text: "", detail: linked ? "Loaded from a link. Not run yet." : "Not run yet." };
    case "waiting":
      return { tone: "busy", text: "Waiting for a runner", detail: whyWaiting(pool, phase.turn) };
    case "preparing":
      return { tone: "busy", text: "Starting", detail: "The runner is being prepared." };
    case "stopped":
      return { tone: "quiet", text: "Stopped", detail: "Stopped before the program started." };
    case "failed":
      return { tone: "bad", text: "Not run", detail: "The program wasn't started." };
    case "started":
      return { ...(execution.state === "PENDING" ? { tone: "busy", text: "Starting" } : verdict(execution)), detail: sentence(execution) };
  }
}
