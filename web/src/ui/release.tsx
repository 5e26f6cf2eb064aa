import { request } from "../lib/request";
import { ReleaseMutation } from "../lib/calls";
import { short } from "../lib/format";
import { useAction } from "../lib/hooks";
import { Dialog, Failure } from "./parts";

/** releaseOne releases a runner; it returns "ended" if it was already gone. */
export async function releaseOne(id: string): Promise<"done" | "ended"> {
  return (await request(ReleaseMutation, { id })).releaseRunner.released ? "done" : "ended";
}

export interface ReleaseProps {
  /** The runner to release; undefined closes the dialog. */
  runner: { id: string; environmentId: string } | undefined;
  onClose: () => void;
  onReleased?: () => void;
}

/** ReleaseDialog releases a runner after a confirmation. */
export function ReleaseDialog({ runner, onClose, onReleased }: ReleaseProps) {
  const release = useAction(async (id: string) => {
    await request(ReleaseMutation, { id });
    onReleased?.();
    onClose();
  });
  return (
    <Dialog title="Release this runner?" open={runner !== undefined} onClose={onClose}>
      <p>
        This ends runner <span className="mono">{runner && short(runner.id)}</span> of {runner?.environmentId} with all its programs, and deletes its files. Output is kept.
      </p>
      <Failure error={release.error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" className="button danger" disabled={release.busy} onClick={() => runner && void release.run(runner.id)}>
          Release it
        </button>
      </div>
    </Dialog>
  );
}
