import { lazy, Suspense, useEffect, useState } from "react";
import { ServerError } from "../../lib/request";
import { useAction } from "../../lib/hooks";
import { visible } from "../../lib/visible";
import { Dialog, Failure, Loading, Notice } from "../../ui/parts";
import { languageOf } from "../playground/program";
import { fileState, findFile, same, update, type FileState } from "./file";

const Editor = lazy(() => import("../playground/editor"));

/** textOf decodes a file's text; undefined if it isn't UTF-8 text. */
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
  /** Whether the runner is gone: the text can then only be copied. */
  gone?: boolean;
  onClose: () => void;
  onSaved: () => void;
}

/**
 * EditDialog edits a text file. Before saving it checks whether the file changed since, and overwrites a change only
 * after a confirmation. The API has no conditional write, so a change between the check and the write is overwritten.
 */
export function EditDialog({ runnerId, path, gone = false, onClose, onSaved }: EditProps) {
  const [began, setBegan] = useState<FileState>(); // the state of the file when it was loaded
  const [text, setText] = useState<string>();
  const [binary, setBinary] = useState(false);
  const [round, setRound] = useState(0); // counts the loads: each creates a new editor
  const [other, setOther] = useState<"changed" | "deleted">();
  const load = useAction(async () => {
    const now = await fileState(runnerId, path);
    const response = await fetch(now.downloadUrl);
    if (!response.ok) throw new ServerError(`The file couldn't be loaded: the server responded with ${response.status}`);
    const content = textOf(new Uint8Array(await response.arrayBuffer()));
    setBinary(content === undefined);
    setText(content);
    setBegan(now);
    setOther(undefined);
    setRound((n) => n + 1);
  });
  const store = useAction(async (force: boolean) => {
    if (text === undefined || !began) return;
    if (!force) {
      const now = await findFile(runnerId, path);
      if (!same(began, now)) return setOther(now ? "changed" : "deleted");
    }
    await update({ runnerId, write: [{ path, text, mode: began.mode }], protected: began.owner === "root" });
    onSaved();
    onClose();
  });
  const { run } = load;
  useEffect(() => void run(), [run]);
  return (
    <Dialog title={visible(path.slice(path.lastIndexOf("/") + 1))} open onClose={onClose}>
      <Failure error={load.error ?? store.error} />
      {gone && <Notice kind="warn">The runner is gone, so the file can't be saved. Copy your text.</Notice>}
      {binary && <Notice kind="warn">This file isn't text, so it can't be edited here.</Notice>}
      {text === undefined && !binary && !load.error && <Loading what="the file" />}
      {other && (
        <Notice
          kind="warn"
          action={
            <span className="row tight">
              {other === "changed" && (
                <button type="button" className="button small" disabled={load.busy} onClick={() => void run()}>
                  Reload without my changes
                </button>
              )}
              <button type="button" className="button small danger" disabled={store.busy} onClick={() => void store.run(true)}>
                {other === "changed" ? "Overwrite it" : "Create it again"}
              </button>
            </span>
          }
        >
          {other === "changed" ? "This file was changed after you opened it. Your text wasn't saved." : "This file was deleted after you opened it. Your text wasn't saved."}
        </Notice>
      )}
      {text !== undefined && (
        // Escape leaves the editor without closing the dialog, which would discard the text.
        <div style={{ height: "50dvh", overflow: "auto", border: "1px solid var(--line)" }} onKeyDown={(event) => event.key === "Escape" && event.preventDefault()}>
          <Suspense fallback={<Loading what="the editor" />}>
            <Editor key={round} text={text} language={languageOf(path)} label={`Content of ${visible(path)}`} onChange={setText} />
          </Suspense>
        </div>
      )}
      {text !== undefined && <p className="small soft">Saving first checks the file for other changes. A change at the same moment is overwritten.</p>}
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
