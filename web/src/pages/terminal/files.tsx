import { lazy, Suspense, useEffect, useRef, useState, type DragEvent } from "react";
import { ask, ServerError } from "../../lib/ask";
import { bytes } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { upload } from "../../lib/upload";
import { Card, Dialog, Failure, Loading, Notice } from "../../ui/parts";
import { save } from "../execution/download";
import { languageOf } from "../playground/program";
import { visible } from "../../lib/visible";
import { Told } from "../../ui/told";

const Editor = lazy(() => import("../playground/editor"));

const FilesQuery = graphql(`
  query Files($runnerId: ID!, $path: String!) {
    runner(id: $runnerId) {
      files(path: $path, first: 1000) {
        nodes {
          path
          type
          size
          mode
          linkTarget
        }
        pageInfo {
          hasNextPage
        }
      }
    }
  }
`);
type File = NonNullable<ResultOf<typeof FilesQuery>["runner"]>["files"]["nodes"][number];

const DownloadQuery = graphql(`
  query FileToDownload($runnerId: ID!, $path: String!) {
    runner(id: $runnerId) {
      file(path: $path) {
        downloadUrl
      }
    }
  }
`);

const UpdateMutation = graphql(`
  mutation UpdateFiles($input: UpdateFilesInput!) {
    updateFiles(input: $input) {
      failed {
        path
        message
      }
    }
  }
`);

const home = "/workspace";
const editable = 512 * 1024;

/** A path below a directory. */
export function join(directory: string, name: string): string {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

export function parent(directory: string): string {
  return directory.slice(0, directory.lastIndexOf("/")) || "/";
}

async function update(input: { runnerId: string; delete?: string[]; write?: { path: string; text: string; mode: string }[] }) {
  const { updateFiles } = await ask(UpdateMutation, { input });
  const failed = updateFiles.failed[0];
  if (failed) throw new ServerError(`${failed.path}: ${failed.message}`);
}

async function addressOf(runnerId: string, path: string): Promise<string> {
  const { runner } = await ask(DownloadQuery, { runnerId, path });
  if (!runner?.file?.downloadUrl) throw new ServerError(`${path} isn't there any more, or is no file.`);
  return runner.file.downloadUrl;
}

/** The files of a runner: list, upload, edit, download, delete. */
export function FilePanel({ runnerId }: { runnerId: string }) {
  const [directory, setDirectory] = useState(home);
  const { data, error, reload } = useQuery(FilesQuery, { runnerId, path: directory }, { every: 4_000 });
  const [over, setOver] = useState(false);
  const [progress, setProgress] = useState<{ name: string; share: number }>();
  const [editing, setEditing] = useState<{ path: string; mode: string }>();
  const [deleting, setDeleting] = useState<string>();
  const picker = useRef<HTMLInputElement>(null);

  const send = useAction(async (files: readonly globalThis.File[]) => {
    try {
      for (const file of files) {
        setProgress({ name: file.name, share: 0 });
        await upload(runnerId, join(directory, file.name), file, (share) => setProgress({ name: file.name, share }));
      }
    } finally {
      setProgress(undefined);
      reload();
    }
  });
  const download = useAction(async (path: string) => save(await addressOf(runnerId, path), path.slice(path.lastIndexOf("/") + 1)));
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    void send.run([...event.dataTransfer.files]);
  };
  const files = data?.runner?.files;
  return (
    <div
      className={over ? "drop" : ""}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <Card
        bare
        title="Files"
        aside={
          <>
            <input ref={picker} type="file" multiple hidden onChange={(event) => void send.run([...(event.target.files ?? [])])} />
            <button type="button" className="button small" disabled={send.busy} onClick={() => picker.current?.click()}>
              Upload
            </button>
          </>
        }
      >
        <div className="row" style={{ padding: "0.375rem 0.75rem", borderBottom: "1px solid var(--line)", flexWrap: "nowrap" }}>
          <button type="button" className="button small" aria-label="The directory above" disabled={directory === "/"} onClick={() => setDirectory(parent(directory))}>
            ↑
          </button>
          <span className="mono clip" title={visible(directory)}>
            <Told text={directory} />
          </span>
        </div>
        {progress && (
          <div style={{ padding: "0.5rem 0.75rem" }}>
            <div className="small clip">
              <Told text={progress.name} />: {Math.round(progress.share * 100)} %
            </div>
            <progress value={progress.share} style={{ width: "100%" }} aria-label={`Uploading ${visible(progress.name)}`} />
          </div>
        )}
        <Failure error={error ?? send.error ?? download.error} />
        {!files && !error && <Loading what="the files" />}
        {files?.nodes.length === 0 && <p className="soft small" style={{ padding: "1rem 0.75rem" }}>Nothing here. Drop files here to upload them.</p>}
        <ul className="files" tabIndex={files && files.nodes.length > 8 ? 0 : undefined}>
          {files?.nodes.map((file) => (
            <Entry
              key={file.path}
              file={file}
              onOpen={() => (file.type === "DIRECTORY" ? setDirectory(pathOf(directory, file)) : setEditing({ path: pathOf(directory, file), mode: file.mode }))}
              onDownload={() => void download.run(pathOf(directory, file))}
              onDelete={() => setDeleting(pathOf(directory, file))}
            />
          ))}
        </ul>
        {files?.pageInfo.hasNextPage && <p className="small soft" style={{ padding: "0.5rem 0.75rem" }}>Only the first thousand are shown.</p>}
      </Card>
      {editing && <EditDialog key={editing.path} runnerId={runnerId} path={editing.path} mode={editing.mode} onClose={() => setEditing(undefined)} onSaved={reload} />}
      <DeleteDialog runnerId={runnerId} path={deleting} onClose={() => setDeleting(undefined)} onDeleted={reload} />
    </div>
  );
}

/** Paths come as they were asked for: below the directory, or absolute. */
function pathOf(directory: string, file: File): string {
  return file.path.startsWith("/") ? file.path : join(directory, file.path);
}

function Entry({ file, onOpen, onDownload, onDelete }: { file: File; onOpen: () => void; onDownload: () => void; onDelete: () => void }) {
  const written = file.path.slice(file.path.lastIndexOf("/") + 1);
  const name = visible(written);
  const target = visible(file.linkTarget ?? "");
  const opens = file.type === "DIRECTORY" || (file.type === "FILE" && file.size <= editable);
  return (
    <li>
      {opens ? (
        <button type="button" className="button plain small clip grow" style={{ justifyContent: "flex-start", display: "block", textAlign: "left" }} onClick={onOpen} title={file.type === "FILE" ? `Edit ${name}` : name}>
          <Told text={written} />
          {file.type === "DIRECTORY" && "/"}
        </button>
      ) : (
        <span className="clip grow" style={{ padding: "0 0.5rem" }} title={target ? `${name} → ${target}` : name}>
          <Told text={written} />
          {file.linkTarget && (
            <span className="soft">
              {" → "}
              <Told text={file.linkTarget} />
            </span>
          )}
        </span>
      )}
      {file.type === "FILE" && (
        <>
          <span className="small soft num nowrap">{bytes(file.size)}</span>
          <button type="button" className="button small plain" aria-label={`Download ${name}`} title="Download" onClick={onDownload}>
            ↓
          </button>
        </>
      )}
      <button type="button" className="button small plain" aria-label={`Delete ${name}`} title="Delete" onClick={onDelete}>
        ×
      </button>
    </li>
  );
}

interface EditProps {
  runnerId: string;
  path: string;
  mode: string;
  onClose: () => void;
  onSaved: () => void;
}

function EditDialog({ runnerId, path, mode, onClose, onSaved }: EditProps) {
  const [text, setText] = useState<string>();
  const [binary, setBinary] = useState(false);
  const load = useAction(async () => {
    const response = await fetch(await addressOf(runnerId, path));
    if (!response.ok) throw new ServerError(`The file can't be read: ${response.status}`);
    const content = new Uint8Array(await response.arrayBuffer());
    try {
      const decoded = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
      if (decoded.includes("\0")) setBinary(true);
      else setText(decoded);
    } catch {
      setBinary(true);
    }
  });
  const store = useAction(async () => {
    await update({ runnerId, write: [{ path, text: text ?? "", mode }] });
    onSaved();
    onClose();
  });
  const { run } = load;
  useEffect(() => void run(), [run]);
  return (
    <Dialog title={visible(path.slice(path.lastIndexOf("/") + 1))} open onClose={onClose}>
      <Failure error={load.error ?? store.error} />
      {binary && <Notice kind="warn">This file isn't text, so it can't be edited here.</Notice>}
      {text === undefined && !binary && !load.error && <Loading what="the file" />}
      {text !== undefined && (
        // Escape leaves the editor, and not the dialog with what was written in it.
        <div style={{ height: "50dvh", overflow: "auto", border: "1px solid var(--line)" }} onKeyDown={(event) => event.key === "Escape" && event.preventDefault()}>
          <Suspense fallback={<Loading what="the editor" />}>
            <Editor text={text} language={languageOf(path)} label={`Content of ${visible(path)}`} onChange={setText} />
          </Suspense>
        </div>
      )}
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Close
        </button>
        <button type="button" className="button primary" disabled={text === undefined || store.busy} onClick={() => void store.run()}>
          Save
        </button>
      </div>
    </Dialog>
  );
}

function DeleteDialog({ runnerId, path, onClose, onDeleted }: { runnerId: string; path: string | undefined; onClose: () => void; onDeleted: () => void }) {
  const remove = useAction(async (which: string) => {
    await update({ runnerId, delete: [which] });
    onDeleted();
    onClose();
  });
  return (
    <Dialog title="Delete this?" open={path !== undefined} onClose={onClose}>
      <p className="break">
        <span className="mono"><Told text={path ?? ""} /></span> goes, with all that is below it.
      </p>
      <Failure error={remove.error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" className="button danger" disabled={remove.busy} onClick={() => path && void remove.run(path)}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}
