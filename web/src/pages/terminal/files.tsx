import { useRef, useState, type DragEvent } from "react";
import { bytes } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { upload } from "../../lib/upload";
import { Card, Dialog, Failure, Loading } from "../../ui/parts";
import { save } from "../execution/download";
import { visible } from "../../lib/visible";
import { Told } from "../../ui/told";
import { EditDialog } from "./edit";
import { look, update } from "./file";

const FilesQuery = graphql(`
  query Files($runnerId: ID!, $path: String!) {
    runner(id: $runnerId) {
      files(path: $path, first: 1000) {
        nodes {
          path
          type
          size
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

const home = "/workspace";
const editable = 512 * 1024;

/** A path below a directory. */
export function join(directory: string, name: string): string {
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

export function parent(directory: string): string {
  return directory.slice(0, directory.lastIndexOf("/")) || "/";
}

/** The files of a runner: list, upload, edit, download, delete. */
export function FilePanel({ runnerId }: { runnerId: string }) {
  const [directory, setDirectory] = useState(home);
  const { data, error, reload } = useQuery(FilesQuery, { runnerId, path: directory }, { every: 4_000 });
  const [over, setOver] = useState(false);
  const [progress, setProgress] = useState<{ name: string; share: number }>();
  const [editing, setEditing] = useState<string>();
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
  const download = useAction(async (path: string) => save((await look(runnerId, path)).downloadUrl, path.slice(path.lastIndexOf("/") + 1)));
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
              onOpen={() => (file.type === "DIRECTORY" ? setDirectory(pathOf(directory, file)) : setEditing(pathOf(directory, file)))}
              onDownload={() => void download.run(pathOf(directory, file))}
              onDelete={() => setDeleting(pathOf(directory, file))}
            />
          ))}
        </ul>
        {files?.pageInfo.hasNextPage && <p className="small soft" style={{ padding: "0.5rem 0.75rem" }}>Only the first thousand are shown.</p>}
      </Card>
      {editing && <EditDialog key={editing} runnerId={runnerId} path={editing} onClose={() => setEditing(undefined)} onSaved={reload} />}
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
