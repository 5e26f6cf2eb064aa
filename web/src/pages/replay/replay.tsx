import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { request, ServerError } from "../../lib/request";
import { bytes, short } from "../../lib/format";
import { limited } from "../../lib/limited";
import { noExecution } from "../../lib/loglines";
import { graphql } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { Empty, Failure, Loading, Notice, Page } from "../../ui/parts";
import { save } from "../execution/download";
import { readCast, readMoment } from "./cast";

const Stage = lazy(() => import("./stage"));

const RecordingQuery = graphql(`
  query Recording($id: ID!) {
    execution(id: $id) {
      state
      outputUrl
      usage {
        outputBytes
      }
    }
  }
`);

// The most bytes that a page plays. Larger recordings can only be downloaded.
const largest = 32 * 2 ** 20;
const largestText = 4 * largest; // with the times and JSON's escapes
const longestPause = 2;

/** address returns the URL of an execution's recording. */
async function address(id: string): Promise<string> {
  const { execution } = await request(RecordingQuery, { id });
  if (!execution) throw noExecution();
  return `${execution.outputUrl}&format=asciicast`;
}

/** Replay replays an execution's output with its timing. */
export default function Replay({ id }: { id: string }) {
  const [text, setText] = useState<string>();
  const [live, setLive] = useState(false);
  const [brief, setBrief] = useState(true);
  const [moment, setMoment] = useState(() => readMoment(window.location.hash));
  useEffect(() => {
    const read = () => setMoment(readMoment(window.location.hash));
    window.addEventListener("hashchange", read);
    return () => window.removeEventListener("hashchange", read);
  }, []);
  const load = useAction(async () => {
    const { execution } = await request(RecordingQuery, { id });
    if (!execution) throw noExecution();
    const printed = execution.usage?.outputBytes ?? 0;
    if (printed > largest) throw new ServerError(`The output has ${bytes(printed)}, which is too much to play here. Download the asciicast instead.`);
    const response = await fetch(`${execution.outputUrl}&format=asciicast`);
    if (!response.ok) throw new ServerError(`The recording couldn't be loaded: the server responded with ${response.status}`);
    setLive(execution.state !== "FINISHED");
    setText(await limited(response.body!, largestText)); // the size of a running program's output is unknown
  });
  const download = useAction(async () => save(await address(id), `${id}.cast`));
  const { run } = load;
  useEffect(() => void run(), [run]);
  const cast = useMemo(() => (text === undefined ? undefined : readCast(text, brief ? longestPause : Infinity)), [text, brief]);
  const printed = cast?.events.some((event) => "text" in event);
  return (
    <Page
      title={`Replay of ${short(id)}`}
      above={{ title: "Execution", href: `/executions/${id}` }}
      actions={
        <>
          <label className="check">
            <input type="checkbox" checked={brief} onChange={(event) => setBrief(event.target.checked)} />
            Pauses of {longestPause} s at most
          </label>
          <button type="button" className="button" disabled={download.busy} onClick={() => void download.run()}>
            Download the asciicast
          </button>
        </>
      }
    >
      <Failure error={load.error ?? download.error} retry={load.error?.retryable ? () => void load.run() : undefined} />
      {live && <Notice>The program is still running. The replay has its output up to when the page was loaded.</Notice>}
      {!cast && !load.error && <Loading what="the recording" />}
      {cast && !printed && <Empty title="No output" />}
      {cast && printed && (
        <Suspense fallback={<Loading what="the player" />}>
          <Stage key={moment} cast={cast} moment={moment} />
        </Suspense>
      )}
    </Page>
  );
}
