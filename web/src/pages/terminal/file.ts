import { request, ServerError } from "../../lib/request";
import { graphql } from "../../lib/graphql";

const FileQuery = graphql(`
  query FileNow($runnerId: ID!, $path: String!, $followLinks: Boolean!) {
    runner(id: $runnerId) {
      file(path: $path, followLinks: $followLinks) {
        size
        modifiedAt
        mode
        owner
        downloadUrl
      }
    }
  }
`);

/** FileState is a file's metadata at one moment. */
export interface FileState {
  size: number;
  modifiedAt: string;
  mode: string;
  owner: string;
  downloadUrl: string;
}

/** fileState returns a file's state. It throws if there is no file. */
export async function fileState(runnerId: string, path: string): Promise<FileState> {
  const found = await findFile(runnerId, path);
  if (!found) throw new ServerError(`${path} no longer exists or isn't a file.`);
  return found;
}

/** findFile returns a file's state; undefined if there is no file. It throws RUNNER_GONE without the runner. */
export async function findFile(runnerId: string, path: string): Promise<FileState | undefined> {
  const { runner } = await request(FileQuery, { runnerId, path, followLinks: true });
  if (!runner) throw new ServerError("The runner and its files are gone.", "RUNNER_GONE");
  const { file } = runner;
  return file?.downloadUrl ? { ...file, downloadUrl: file.downloadUrl } : undefined;
}

/** exists reports whether anything is at a path, for example a directory or a link to nothing. */
export async function exists(runnerId: string, path: string): Promise<boolean> {
  return (await request(FileQuery, { runnerId, path, followLinks: false })).runner?.file != null;
}

/** same reports whether a file seems unchanged, by size and time of modification. */
export function same(before: FileState, now: FileState | undefined): boolean {
  return now !== undefined && now.size === before.size && now.modifiedAt === before.modifiedAt;
}

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

export type Write = { path: string; mode?: string } & ({ text: string } | { directory: true });

/** update writes and deletes files; protected ones only if the runner can protect any. It throws the first failure. */
export async function update(input: { runnerId: string; delete?: string[]; write?: Write[]; protected?: boolean }) {
  const { updateFiles } = await request(UpdateMutation, { input }).catch((error: unknown) => {
    if (!(error instanceof ServerError && error.field === "protected")) throw error;
    return request(UpdateMutation, { input: { ...input, protected: false } });
  });
  const failed = updateFiles.failed[0];
  if (failed) throw new ServerError(`${failed.path}: ${failed.message}`);
}

const MoveMutation = graphql(`
  mutation MoveFile($input: MoveFileInput!) {
    moveFile(input: $input) {
      file {
        path
      }
    }
  }
`);

/** move moves an entry. It never replaces another one. */
export async function move(runnerId: string, from: string, to: string) {
  await request(MoveMutation, { input: { runnerId, from, to } });
}
