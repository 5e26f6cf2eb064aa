import { lazy, Suspense, useEffect, useState } from "react";
import { ServerError } from "../../lib/ask";
import { useAction } from "../../lib/hooks";
import { visible } from "../../lib/visible";
import { Dialog, Failure, Loading, Notice } from "../../ui/parts";
import { languageOf } from "../playground/program";
import { glance, look, same, update, type Look } from "./file";

const Editor = lazy(() => import("../playground/editor"));

/** A file's text; undefined for what is none. */
export function textOf(content: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

export interface EditProps {
  runnerId: string;
  path: string;
  /** The runner is gone: what was written can only be copied. */
  gone?: boolean;
  onClose: () => void;
  onSaved: () => void;
}

/**
 * Edits a text file. Before it is saved it is looked at again: a change by
 * somebody else is told, and only overwritten when that is meant. The API has no
 * condition for a write, so one between the look and the write isn't seen.
 */
export function EditDialog({ runnerId, path, gone = false, onClose, onSaved }: EditProps) {
  const [began, setBegan] = useState<Look>(); // with what the text was
  const [text, setText] = useState<string>();
  const [binary, setBinary] = useState(false);
  const [round, setRound] = useState(0); // how often it was loaded: the editor begins anew
  const [other, setOther] = useState<"changed" | "deleted">();
  const load = useAction(async () => {
    const now = await look(runnerId, path);
    const response = await fetch(now.downloadUrl);
    if (!response.ok) throw new ServerError(`The file can't be read: ${response.status}`);
    const content = textOf(new Uint8Array(await response.arrayBuffer()));
    setBinary(content === undefined);
    setText(content);
    setBegan(now);
    setOther(undefined);
    setRound((n) => n + 1);
  });
  const store = useAction(async (whatever: boolean) => {
    if (text === undefined || !began) return;
    if (!whatever) {
      const now = await glance(runnerId, path);
      if (!same(began, now)) return setOther(now ? "changed" : "deleted");
    }
    await update({ runnerId, write: [{ path, text, mode: began.mode }] });
    onSaved();
    onClose();
  });
  const { run } = load;
  useEffect(() => void run(), [run]);
  return (
    <Dialog title={visible(path.slice(path.lastIndexOf("/") + 1))} open onClose={onClose}>
      <Failure error={load.error ?? store.error} />
      {gone && <Notice kind="warn">The runner is gone, so nothing can be saved. Copy your text.</Notice>}
      {binary && <Notice kind="warn">This file isn't text, so it can't be edited here.</Notice>}
      {text === undefined && !binary && !load.error && <Loading what="the file" />}
      {other && (
        <Notice
          kind="warn"
          action={
            <span className="row tight">
              {other === "changed" && (
                <button type="button" className="button small" disabled={load.busy} onClick={() => void run()}>
                  Load it without my changes
                </button>
              )}
              <button type="button" className="button small danger" disabled={store.busy} onClick={() => void store.run(true)}>
                {other === "changed" ? "Overwrite it" : "Make it anew"}
              </button>
            </span>
          }
        >
          {other === "changed" ? "Somebody, or a program, changed this file since it was opened here. It wasn't saved." : "Somebody, or a program, deleted this file since it was opened here. It wasn't saved."}
        </Notice>
      )}
      {text !== undefined && (
        // Escape leaves the editor, and not the dialog with what was written in it.
        <div style={{ height: "50dvh", overflow: "auto", border: "1px solid var(--line)" }} onKeyDown={(event) => event.key === "Escape" && event.preventDefault()}>
          <Suspense fallback={<Loading what="the editor" />}>
            <Editor key={round} text={text} language={languageOf(path)} label={`Content of ${visible(path)}`} onChange={setText} />
          </Suspense>
        </div>
      )}
      {text !== undefined && <p className="small soft">Just before it is saved it is looked at for changes by others. One in that very moment is overwritten.</p>}
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
        <button type="button" className="button primary" disabled={gone || text === undefined || store.busy || other !== undefined} onClick={() => void store.run(false)}>
          Save
        </button>
      </div>
    </Dialog>
  );
}
