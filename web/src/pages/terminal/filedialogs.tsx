import { useState, type FormEvent } from "react";
import { ServerError } from "../../lib/request";
import { plural } from "../../lib/format";
import { useAction } from "../../lib/hooks";
import { Dialog, Failure, Field } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";
import { move, exists, update } from "./file";
import { join, nameOf, wrongName } from "./paths";

interface NameProps {
  title: string;
  label: string;
  hint: string;
  initial?: string;
  action: string;
  onClose: () => void;
  /** Called with a valid name. */
  onName: (name: string) => Promise<void>;
}

/** NameDialog asks for a name. Errors are shown at the field. */
function NameDialog({ title, label, hint, initial = "", action, onClose, onName }: NameProps) {
  const [name, setName] = useState(initial);
  const [wrong, setWrong] = useState<string>();
  const act = useAction(async () => {
    await onName(name);
    onClose();
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const reason = wrongName(name);
    setWrong(reason);
    if (!reason) void act.run();
  };
  return (
    <Dialog title={title} open onClose={onClose}>
      <form className="stack" noValidate onSubmit={submit}>
        <Field label={label} hint={hint} error={wrong}>
          {(tie) => (
            <input
              {...tie}
              className="input mono"
              autoComplete="off"
              spellCheck={false}
              autoFocus
              value={name}
              onChange={(event) => {
                setName(event.target.value);
                setWrong(undefined);
              }}
            />
          )}
        </Field>
        <Failure error={act.error} />
        <div className="row">
          <button type="button" className="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" className="button primary" disabled={act.busy}>
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export interface NewProps {
  runnerId: string;
  directory: string;
  kind: "file" | "directory";
  onClose: () => void;
  onMade: (path: string) => void;
}

/** NewDialog creates an empty file or directory. */
export function NewDialog({ runnerId, directory, kind, onClose, onMade }: NewProps) {
  return (
    <NameDialog
      title={`New ${kind}`}
      label="Name"
      hint={`Created in ${directory}. A name with slashes also creates the parent directories.`}
      action={`Create the ${kind}`}
      onClose={onClose}
      onName={async (name) => {
        const path = join(directory, name);
        if (await exists(runnerId, path)) throw new ServerError(`${name} already exists.`);
        await update({ runnerId, write: [kind === "file" ? { path, text: "" } : { path, directory: true }] });
        onMade(path);
      }}
    />
  );
}

export interface RenameProps {
  runnerId: string;
  directory: string;
  path: string;
  onClose: () => void;
  onRenamed: () => void;
}

/** RenameDialog renames or moves a file or a directory. */
export function RenameDialog({ runnerId, directory, path, onClose, onRenamed }: RenameProps) {
  return (
    <NameDialog
      title="Rename"
      label="New name"
      hint="A path moves it: sub/name into the subdirectory sub, /tmp/name into /tmp."
      initial={nameOf(path)}
      action="Rename"
      onClose={onClose}
      onName={async (name) => {
        const to = join(directory, name);
        if (to !== path) await move(runnerId, path, to);
        onRenamed();
      }}
    />
  );
}

export interface DeleteProps {
  runnerId: string;
  paths: readonly string[];
  onClose: () => void;
  onDeleted: () => void;
}

const named = 10; // entries listed by name

/** DeleteDialog deletes files and directories after a confirmation. */
export function DeleteDialog({ runnerId, paths, onClose, onDeleted }: DeleteProps) {
  const remove = useAction(async () => {
    await update({ runnerId, delete: [...paths] });
    onDeleted();
    onClose();
  });
  return (
    <Dialog title={paths.length === 1 ? "Delete this?" : `Delete ${plural(paths.length, "entry", "entries")}?`} open={paths.length > 0} onClose={onClose}>
      <ul className="break mono small named">
        {paths.slice(0, named).map((path) => (
          <li key={path}>
            <SafeText text={path} />
          </li>
        ))}
        {paths.length > named && <li>and {plural(paths.length - named, "more", "more")}</li>}
      </ul>
      <p>{paths.length === 1 ? "It is deleted with everything in it." : "They are deleted with everything in them."}</p>
      <Failure error={remove.error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          {paths.length === 1 ? "Keep it" : "Keep them"}
        </button>
        <button type="button" className="button danger" disabled={remove.busy} onClick={() => void remove.run()}>
          {paths.length === 1 ? "Delete" : `Delete ${paths.length}`}
        </button>
      </div>
    </Dialog>
  );
}
