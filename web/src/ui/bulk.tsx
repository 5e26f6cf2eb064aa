import { useState, useRef } from "react";
import { actOnAll, tallied, type Tally } from "../lib/bulk";
import { count } from "../lib/format";
import { Dialog } from "./parts";
import { Told } from "./told";

export interface BulkProps<Row> {
  /** Which, as they were when the question came; undefined: it isn't asked. */
  rows: readonly Row[] | undefined;
  /** The question, and the button that agrees: "Cancel 3 executions". */
  title: string;
  agree: string;
  keep: string;
  /** What ends, and what is kept. */
  children: string;
  nameOf: (row: Row) => string;
  act: (row: Row) => Promise<"done" | "ended">;
  /** Of those that it was done to, and of those that had ended before. */
  did: string;
  had: string;
  onClose: () => void;
  onDone: () => void;
}

const named = 5; // of those that will end

/** Acts on many, once that was meant; it says how far it is, and what became of them. */
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
    if (stop) return stop.abort(); // what has begun goes on, and is reported
    setTally(undefined);
    onClose();
  };
  const tried = tally ? all - tally.left : 0;
  return (
    <Dialog title={tally && !stop ? "What became of them" : title} open={rows !== undefined} onClose={close}>
      {!stop && !tally && (
        <>
          <p>{children}</p>
          <ul className="small break">
            {rows?.slice(0, named).map((row, at) => (
              <li key={at} className="mono">
                <Told text={nameOf(row).slice(0, 120)} />
              </li>
            ))}
            {all > named && <li>and {count(all - named)} more</li>}
          </ul>
        </>
      )}
      {stop && <progress max={all} value={tried} aria-label={title} />}
      <p role="status" className="break">
        {stop ? `${count(tried)} of ${count(all)} …` : tally && <Told text={`${tallied(tally, did, had)}.`} />}
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
