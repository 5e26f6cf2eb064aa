import { bytes } from "./format";
import { graphql } from "./graphql";

export type LossCause = ReturnType<typeof graphql.scalar<"OutputLossCause">>;

const causes: Record<LossCause, string> = {
  STORAGE_FULL: "the server's storage was full",
  UNWRITABLE: "the server couldn't write it",
  RETENTION: "it was deleted after its retention period",
  DELETED: "its file was deleted from the server's data directory",
  DAMAGED: "its file in the server's data directory is damaged",
  UNKNOWN: "the cause is unknown",
};

/** missing describes lost output: its size and the cause. */
export function missing(size: number, cause: LossCause): string {
  return `${bytes(size)} of output are missing here: ${causes[cause]}`;
}
