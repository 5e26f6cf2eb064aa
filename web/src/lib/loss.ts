import { bytes } from "./format";
import { graphql } from "./graphql";

export type LossCause = ReturnType<typeof graphql.scalar<"OutputLossCause">>;

const causes: Record<LossCause, string> = {
  STORAGE_FULL: "the server had no room for them",
  UNWRITABLE: "the server could not write them",
  RETENTION: "they were collected",
  DELETED: "their file was deleted from the server's data directory",
  DAMAGED: "their file in the server's data directory is damaged",
  UNKNOWN: "nobody knows why",
};

/** Where output is missing: how much, and why. */
export function missing(size: number, cause: LossCause): string {
  return `${bytes(size)} are missing here: ${causes[cause]}`;
}
