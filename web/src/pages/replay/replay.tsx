import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { ask, ServerError } from "../../lib/ask";
import { bytes, short } from "../../lib/format";
import { limited } from "../../lib/limited";
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

// More can be downloaded, but not be played in a page.
const largest = 32 * 2 ** 20;
const largestText = 4 * largest; // with the times, and what JSON makes of it
const longestPause = 2;

async function address(id: string): Promise<string> {
  const { execution } = await ask(RecordingQuery, { id });
  if (!execution) throw new ServerError("There is no such execution (any more).");
  return `${execution.outputUrl}&format=asciicast`;
}

/** What an execution printed, as it was printed. */
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
    const { execution } = await ask(RecordingQuery, { id });
    if (!execution) throw new ServerError("There is no such execution (any more).");
    const printed = execution.usage?.outputBytes ?? 0;
    if (printed > largest) throw new ServerError(`It printed ${bytes(printed)}, which is too much to be played here. The asciicast can be downloaded.`);
    const response = await fetch(`${execution.outputUrl}&format=asciicast`);
    if (!response.ok) throw new ServerError(`The recording can't be read: ${response.status}`);
    setLive(execution.state !== "FINISHED");
    setText(await limited(response.body!, largestText)); // one that runs has printed who knows how much
  });
  const download = useAction(async () => save(await address(id), `${id}.cast`));
  const { run } = load;
  useEffect(() => void run(), [run]);
  const cast = useMemo(() => (text === undefined ? undefined : readCast(text, brief ? longestPause : Infinity)), [text, brief]);
  const printed = cast?.events.some((event) => "text" in event);
  return (
    <Page
      title={`Replay of ${short(id)}`}
      above={{ title: "The execution", href: `/executions/${id}` }}
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
      {live && <Notice>It still runs: this is what it had printed when the page was loaded.</Notice>}
      {!cast && !load.error && <Loading what="the recording" />}
      {cast && !printed && <Empty title="It printed nothing" />}
      {cast && printed && (
        <Suspense fallback={<Loading what="the player" />}>
          <Stage key={moment} cast={cast} moment={moment} />
        </Suspense>
      )}
    </Page>
  );
}
