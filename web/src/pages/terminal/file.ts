import { ask, ServerError } from "../../lib/ask";
import { graphql } from "../../lib/graphql";

const FileQuery = graphql(`
  query FileNow($runnerId: ID!, $path: String!) {
    runner(id: $runnerId) {
      file(path: $path) {
        size
        modifiedAt
        mode
        downloadUrl
      }
    }
  }
`);

/** A file as it was at a moment. */
export interface Look {
  size: number;
  modifiedAt: string;
  mode: string;
  downloadUrl: string;
}

/** Looks at a file; it fails where there is none. */
export async function look(runnerId: string, path: string): Promise<Look> {
  const found = await glance(runnerId, path);
  if (!found) throw new ServerError(`${path} isn't there any more, or is no file.`);
  return found;
}

/** Looks at what may be a file. */
export async function glance(runnerId: string, path: string): Promise<Look | undefined> {
  const { runner } = await ask(FileQuery, { runnerId, path });
  if (!runner) throw new ServerError("The runner is gone, and its files with it.", "RUNNER_GONE");
  const { file } = runner;
  return file?.downloadUrl ? { ...file, downloadUrl: file.downloadUrl } : undefined;
}

/** Whether anything is at a path, a directory for example. */
export async function taken(runnerId: string, path: string): Promise<boolean> {
  return (await ask(FileQuery, { runnerId, path })).runner?.file != null;
}

/** Whether a file is, as far as can be seen, what it was. */
export function same(before: Look, now: Look | undefined): boolean {
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

export type Write = { path: string; mode: string } & ({ text: string } | { directory: true });

/** Writes and deletes files; it fails with the first that could not be. */
export async function update(input: { runnerId: string; delete?: string[]; write?: Write[] }) {
  const { updateFiles } = await ask(UpdateMutation, { input });
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

/** Gives an entry another path. It replaces nothing. */
export async function move(runnerId: string, from: string, to: string) {
  await ask(MoveMutation, { input: { runnerId, from, to } });
}
