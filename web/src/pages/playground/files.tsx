import { lazy, Suspense, useState } from "react";
import { Dialog, Field, Loading } from "../../ui/parts";
import { freshName, languageOf, mainOf, rename, withMain, wrongName, type File, type Program } from "./program";

const Editor = lazy(() => import("./editor"));

export interface FilesProps {
  program: Program;
  /** Changes the latest program. */
  onChange: (change: (program: Program) => Program) => void;
  onRun: () => void;
}

/** Files edits the files of a program, one at a time. */
export function Files({ program, onChange, onRun }: FilesProps) {
  const { files } = program;
  const [shown, setShown] = useState({ at: 0, opened: 0 }); // each opening creates a new editor with its own undo history
  const [removing, setRemoving] = useState(false);
  const show = (at: number) => setShown((before) => ({ at, opened: before.opened + 1 }));
  const at = Math.min(shown.at, files.length - 1);
  const file = files[at]!;
  const main = mainOf(program);

  const add = () => {
    onChange((before) => ({ ...before, files: [...before.files, { name: freshName(before.files, file.name), text: "" }] }));
    show(files.length);
  };
  const remove = () => {
    setRemoving(false);
    onChange((before) => ({ ...before, files: before.files.filter((_, other) => other !== at) }));
    show(Math.max(0, at - 1));
  };
  return (
    <>
      <div className="file-tabs" role="group" aria-label="Files">
        {files.map(({ name }, other) => (
          <button key={other} type="button" className="mono" aria-pressed={other === at} onClick={() => show(other)}>
            {name || "no name"}
            {files.length > 1 && other === main && <span className="soft"> · main</span>}
          </button>
        ))}
        <button type="button" aria-label="Add a file" onClick={add}>
          +
        </button>
      </div>
      <div className="file-facts">
        <FileName key={shown.opened} files={files} at={at} onName={(name, from) => onChange((before) => rename(before, at, name, from))} />
        {files.length > 1 && (
          <div className="row tight">
            {main !== undefined && main !== at && (
              <button type="button" className="button small" onClick={() => onChange((before) => withMain(before, at))}>
                Make it the main file
              </button>
            )}
            <button type="button" className="button small" onClick={() => (file.text === "" ? remove() : setRemoving(true))}>
              Remove
            </button>
          </div>
        )}
      </div>
      <div className="editor-frame">
        <Suspense fallback={<Loading what="the editor" />}>
          <Editor
            key={shown.opened}
            text={file.text}
            language={languageOf(file.name)}
            label="Program"
            onChange={(text) => onChange((before) => ({ ...before, files: before.files.map((one, other) => (other === at ? { ...one, text } : one)) }))}
            onRun={onRun}
          />
        </Suspense>
      </div>
      <Dialog title={`Remove ${file.name}?`} open={removing} onClose={() => setRemoving(false)}>
        <p>The file's text will be lost.</p>
        <div className="row">
          <button type="button" className="button" onClick={() => setRemoving(false)}>
            Keep it
          </button>
          <button type="button" className="button danger" onClick={remove}>
            Remove it
          </button>
        </div>
      </Dialog>
    </>
  );
}

interface FileNameProps {
  files: readonly File[];
  at: number;
  /** Renames the file; `from` is its last valid name. */
  onName: (name: string, from: string) => void;
}

/** FileName edits a file's name. It applies on Enter or blur, so that half-typed names don't get into the command. */
function FileName({ files, at, onName }: FileNameProps) {
  const given = files[at]!.name;
  const [typed, setTyped] = useState(given);
  const [right, setRight] = useState(given);
  const wrong = (name: string) => wrongName(files.map((file, other) => (other === at ? { ...file, name } : file)), at);
  const give = () => {
    const name = typed.trim();
    if (name === given) return;
    onName(name, right);
    if (!wrong(name)) setRight(name);
  };
  return (
    <Field label="File name" error={wrong(typed)}>
      {(tie) => (
        <input
          {...tie}
          className="input mono"
          value={typed}
          spellCheck={false}
          autoComplete="off"
          onChange={({ target }) => setTyped(target.value)}
          onBlur={give}
          onKeyDown={({ key }) => key === "Enter" && give()}
        />
      )}
    </Field>
  );
}
