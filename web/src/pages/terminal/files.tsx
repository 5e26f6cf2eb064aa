import { useRef, useState, type DragEvent } from "react";
import { plural } from "../../lib/format";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { upload } from "../../lib/upload";
import { visible } from "../../lib/visible";
import { Card, Failure, Loading, Notice } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";
import { save } from "../execution/download";
import { EditDialog } from "./edit";
import { Entry, EntryFragment, type File } from "./entry";
import { fileState, findFile } from "./file";
import { DeleteDialog, NewDialog, RenameDialog } from "./filedialogs";
import { choose, join, nameOf, parent } from "./paths";

const FilesQuery = graphql(
  `
    query Files($runnerId: ID!, $path: String!) {
      runner(id: $runnerId) {
        files(path: $path, first: 1000) {
          nodes {
            ...Entry
          }
          pageInfo {
            hasNextPage
          }
        }
      }
    }
  `,
  [EntryFragment],
);

const home = "/workspace";
const every = 4_000; // ms between two queries; each counts as a use of the runner

type Asked = { what: "new"; kind: "file" | "directory" } | { what: "edit" | "rename"; path: string } | { what: "delete"; paths: string[] };

/**
 * FilePanel manages a runner's files. Only a live panel refreshes automatically, because each query prolongs the
 * claim.
 */
export function FilePanel({ runnerId, live = true, gone = false }: { runnerId: string; live?: boolean; gone?: boolean }) {
  const [directory, setDirectory] = useState(home);
  const { data, error, reload } = useQuery(FilesQuery, { runnerId, path: directory }, { skip: gone, ...(live && { every }) });
  const [over, setOver] = useState(false);
  const [progress, setProgress] = useState<{ name: string; share: number }>();
  const [did, setDid] = useState("");
  const [asked, setAsked] = useState<Asked>();
  const [wanted, setWanted] = useState("");
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [clicked, setClicked] = useState<string>();
  const picker = useRef<HTMLInputElement>(null);

  const enter = (path: string) => {
    setDirectory(path);
    setSelected(new Set());
    setWanted("");
    setDid("");
  };
  const queue = useRef<{ path: string; file: globalThis.File }[]>([]);
  const send = useAction(async () => {
    const sent: { name: string; replaced: boolean }[] = [];
    setDid("");
    try {
      for (let next = queue.current.shift(); next; next = queue.current.shift()) {
        const { path, file } = next;
        setProgress({ name: file.name, share: 0 });
        const before = await findFile(runnerId, path);
        await upload(runnerId, path, file, (share) => setProgress({ name: file.name, share }));
        sent.push({ name: visible(file.name), replaced: before !== undefined });
      }
    } finally {
      queue.current = [];
      setDid(
        sent.length > 3
          ? `${plural(sent.length, "file")} uploaded; ${sent.filter((one) => one.replaced).length} replaced`
          : sent.map((one) => (one.replaced ? `${one.name} replaced the existing file.` : `${one.name} uploaded.`)).join(" "),
      );
      setProgress(undefined);
      reload();
    }
  });
  const add = (files: Iterable<globalThis.File>) => {
    for (const file of files) queue.current.push({ path: join(directory, file.name), file });
    void send.run();
  };
  const download = useAction(async (paths: readonly string[]) => {
    for (const path of paths) save((await fileState(runnerId, path)).downloadUrl, nameOf(path));
  });
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    add(event.dataTransfer.files);
  };
  const files = data?.runner?.files;
  const shown = files?.nodes.filter((file) => nameOf(file.path).toLowerCase().includes(wanted.toLowerCase())) ?? [];
  const paths = shown.map((file) => pathOf(directory, file));
  const chosen = paths.filter((path) => selected.has(path)); // actions never affect hidden entries
  const downloadable = chosen.filter((path) => shown[paths.indexOf(path)]!.type === "FILE");
  /** Closes a dialog, unless another one has replaced it. */
  const close = (mine: Asked, next?: Asked) => setAsked((now) => (now === mine ? next : now));
  const changed = () => {
    setDid("");
    reload();
  };
  const edit = asked?.what === "edit" && <EditDialog key={asked.path} runnerId={runnerId} path={asked.path} gone={gone} onClose={() => close(asked)} onSaved={changed} />;
  if (gone) {
    return (
      <>
        <Notice>The runner and its files are gone.</Notice>
        {edit}
      </>
    );
  }
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
          <span className="row tight">
            <input
              ref={picker}
              type="file"
              multiple
              hidden
              onChange={(event) => {
                add(event.target.files ?? []);
                event.target.value = ""; // so that choosing the same file again is a change
              }}
            />
            <button type="button" className="button small" onClick={() => setAsked({ what: "new", kind: "file" })}>
              New file
            </button>
            <button type="button" className="button small" onClick={() => setAsked({ what: "new", kind: "directory" })}>
              New directory
            </button>
            <button type="button" className="button small" disabled={send.busy} onClick={() => picker.current?.click()}>
              Upload
            </button>
          </span>
        }
      >
        <div className="row files-bar" style={{ flexWrap: "nowrap" }}>
          <button type="button" className="button small" aria-label="Parent directory" disabled={directory === "/"} onClick={() => enter(parent(directory))}>
            ↑
          </button>
          <span className="mono clip grow" title={visible(directory)}>
            <SafeText text={directory} />
          </span>
          {!live && (
            <button type="button" className="button small" onClick={reload}>
              Refresh
            </button>
          )}
        </div>
        {files && files.nodes.length > 0 && (
          <div className="row files-bar">
            <input
              type="checkbox"
              aria-label="Select all"
              checked={paths.length > 0 && chosen.length === paths.length}
              onChange={(event) => setSelected(new Set(event.target.checked ? paths : []))}
            />
            {chosen.length === 0 ? (
              <input className="input grow" type="search" aria-label="Find names" placeholder="Find names" value={wanted} onChange={(event) => setWanted(event.target.value)} />
            ) : (
              <>
                <span className="small num grow" role="status">
                  {chosen.length} selected
                </span>
                <button type="button" className="button small" disabled={downloadable.length === 0 || download.busy} onClick={() => void download.run(downloadable)}>
                  Download {downloadable.length}
                </button>
                <button type="button" className="button small danger" onClick={() => setAsked({ what: "delete", paths: chosen })}>
                  Delete {chosen.length} …
                </button>
                <button type="button" className="button small plain" onClick={() => setSelected(new Set())}>
                  Clear
                </button>
              </>
            )}
          </div>
        )}
        {progress && (
          <div className="files-bar">
            <div className="small clip">
              <SafeText text={progress.name} />: {Math.round(progress.share * 100)} %
            </div>
            <progress value={progress.share} style={{ width: "100%" }} aria-label={`Uploading ${visible(progress.name)}`} />
          </div>
        )}
        <p className={did ? "small files-bar break" : "hidden-text"} role="status">
          {did}
        </p>
        <Failure error={error ?? send.error ?? download.error} />
        {!files && !error && <Loading what="the files" />}
        {files?.nodes.length === 0 && <p className="soft small" style={{ padding: "1rem 0.75rem" }}>This directory is empty. Drop files here to upload them.</p>}
        {files && files.nodes.length > 0 && shown.length === 0 && (
          <div className="row files-bar" role="status">
            <span className="small break grow">
              None of the {plural(files.nodes.length, "name")} in <SafeText text={directory} /> contains “<SafeText text={wanted} />”.
            </span>
            <button type="button" className="button small" onClick={() => setWanted("")}>
              Show all
            </button>
          </div>
        )}
        <ul className="files" tabIndex={shown.length > 8 ? 0 : undefined}>
          {shown.map((file, at) => {
            const path = paths[at]!;
            return (
              <Entry
                key={file.path}
                file={file}
                chosen={selected.has(path)}
                onChoose={(range) => {
                  setSelected(choose(new Set(chosen), paths, path, range ? clicked : undefined));
                  setClicked(path);
                }}
                onOpen={() => (file.type === "DIRECTORY" ? enter(path) : setAsked({ what: "edit", path }))}
                onDownload={() => void download.run([path])}
                onRename={() => setAsked({ what: "rename", path })}
                onDelete={() => setAsked({ what: "delete", paths: [path] })}
              />
            );
          })}
        </ul>
        {files?.pageInfo.hasNextPage && <p className="small soft files-bar">Only the first 1,000 entries are shown and searched.</p>}
      </Card>
      {asked?.what === "new" && (
        <NewDialog
          runnerId={runnerId}
          directory={directory}
          kind={asked.kind}
          onClose={() => close(asked)}
          onMade={(path) => {
            changed();
            close(asked, asked.kind === "file" ? { what: "edit", path } : undefined);
          }}
        />
      )}
      {edit}
      {asked?.what === "rename" && <RenameDialog runnerId={runnerId} directory={directory} path={asked.path} onClose={() => close(asked)} onRenamed={changed} />}
      {asked?.what === "delete" && <DeleteDialog runnerId={runnerId} paths={asked.paths} onClose={() => close(asked)} onDeleted={changed} />}
    </div>
  );
}

/** pathOf returns an entry's absolute path. The API returns it relative to the directory, or absolute. */
function pathOf(directory: string, file: File): string {
  return file.path.startsWith("/") ? file.path : join(directory, file.path);
}
