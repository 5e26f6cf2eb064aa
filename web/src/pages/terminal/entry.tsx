import type { ResultOf } from "../../lib/graphql";
import { graphql } from "../../lib/graphql";
import { bytes } from "../../lib/format";
import { visible } from "../../lib/visible";
import { SafeText } from "../../ui/safetext";
import { nameOf } from "./paths";

export const EntryFragment = graphql(`
  fragment Entry on File {
    path
    type
    size
    linkTarget
  }
`);
export type File = ResultOf<typeof EntryFragment>;

const editable = 512 * 1024;

export interface EntryProps {
  file: File;
  chosen: boolean;
  /** Called with true if Shift was held, for a range. */
  onChoose: (range: boolean) => void;
  onOpen: () => void;
  onDownload: () => void;
  onRename: () => void;
  onDelete: () => void;
}

/** Entry is a row of the files panel. */
export function Entry({ file, chosen, onChoose, onOpen, onDownload, onRename, onDelete }: EntryProps) {
  const written = nameOf(file.path);
  const name = visible(written);
  const target = visible(file.linkTarget ?? "");
  const opens = file.type === "DIRECTORY" || (file.type === "FILE" && file.size <= editable);
  return (
    <li>
      <input type="checkbox" aria-label={`Select ${name}`} checked={chosen} onChange={(event) => onChoose((event.nativeEvent as MouseEvent).shiftKey)} />
      {opens ? (
        <button type="button" className="button plain small clip grow" style={{ justifyContent: "flex-start", display: "block", textAlign: "left" }} onClick={onOpen} title={file.type === "FILE" ? `Edit ${name}` : name}>
          <SafeText text={written} />
          {file.type === "DIRECTORY" && "/"}
        </button>
      ) : (
        <span className="clip grow" style={{ padding: "0 0.5rem" }} title={target ? `${name} → ${target}` : name}>
          <SafeText text={written} />
          {file.linkTarget && (
            <span className="soft">
              {" → "}
              <SafeText text={file.linkTarget} />
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
      <button type="button" className="button small plain" aria-label={`Rename ${name}`} title="Rename" onClick={onRename}>
        ✎
      </button>
      <button type="button" className="button small plain" aria-label={`Delete ${name}`} title="Delete" onClick={onDelete}>
        ×
      </button>
    </li>
  );
}
