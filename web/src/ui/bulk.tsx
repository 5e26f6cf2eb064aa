import { useState, useRef } from "react";
import { actOnAll, describeTally, type Tally } from "../lib/bulk";
import { count } from "../lib/format";
import { Dialog } from "./parts";
import { SafeText } from "./safetext";

export interface BulkProps<Row> {
  /** The rows at the time of the request; undefined closes the dialog. */
  rows: readonly Row[] | undefined;
  /** The question, "Cancel 3 executions?", and the text of its confirming button. */
  title: string;
  agree: string;
  keep: string;
  /** Explains what ends and what is kept. */
  children: string;
  nameOf: (row: Row) => string;
  act: (row: Row) => Promise<"done" | "ended">;
  /** The words for rows acted on ("cancelled") and for rows that had already ended. */
  did: string;
  had: string;
  onClose: () => void;
  onDone: () => void;
}

const named = 5; // rows listed by name

/** BulkDialog acts on many rows after a confirmation. It shows the progress and the results. */
export function BulkDialog<Row>({ rows, title, agree, keep, children, nameOf, act, did, had, onClose, onDone }: BulkProps<Row>) {
  const [tally, setTally] = useState<Tally>();
  const [stop, setStop] = useState<AbortController>();
  const running = useRef(false);
  const all = rows?.length ?? 0;
  const run = async () => {
    if (!rows || running.current) return;
    running.current = true;
    const stopping = new AbortController();
    setStop(stopping);
    setTally(await actOnAll(rows, act, setTally, stopping.signal));
    setStop(undefined);
    running.current = false;
    onDone();
  };
  const close = () => {
    if (stop) return stop.abort(); // requests under way continue and are reported
    setTally(undefined);
    onClose();
  };
  const tried = tally ? all - tally.left : 0;
  return (
    <Dialog title={tally && !stop ? "Results" : title} open={rows !== undefined} onClose={close}>
      {!stop && !tally && (
        <>
          <p>{children}</p>
          <ul className="small break">
            {rows?.slice(0, named).map((row, at) => (
              <li key={at} className="mono">
                <SafeText text={nameOf(row).slice(0, 120)} />
              </li>
            ))}
            {all > named && <li>and {count(all - named)} more</li>}
          </ul>
        </>
      )}
      {stop && <progress max={all} value={tried} aria-label={title} />}
      <p role="status" className="break">
        {stop ? `${count(tried)} of ${count(all)} …` : tally && <SafeText text={`${describeTally(tally, did, had)}.`} />}
      </p>
      <div className="row">
        <button type="button" className="button" onClick={close}>
          {stop ? "Stop" : tally ? "Close" : keep}
        </button>
        {!stop && !tally && (
          <button type="button" className="button danger" onClick={() => void run()}>
            {agree}
          </button>
        )}
      </div>
    </Dialog>
  );
}
