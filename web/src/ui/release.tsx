import { ask } from "../lib/ask";
import { ReleaseMutation } from "../lib/calls";
import { short } from "../lib/format";
import { useAction } from "../lib/hooks";
import { Dialog, Failure } from "./parts";

/** Releases a runner, or says that it was gone. */
export async function releaseOne(id: string): Promise<"done" | "ended"> {
  return (await ask(ReleaseMutation, { id })).releaseRunner.released ? "done" : "ended";
}

export interface ReleaseProps {
  /** Which; without one the question isn't asked. */
  runner: { id: string; environmentId: string } | undefined;
  onClose: () => void;
  onReleased?: () => void;
}

/** Releases a runner, once that was meant. */
export function ReleaseDialog({ runner, onClose, onReleased }: ReleaseProps) {
  const release = useAction(async (id: string) => {
    await ask(ReleaseMutation, { id });
    onReleased?.();
    onClose();
  });
  return (
    <Dialog title="Release this runner?" open={runner !== undefined} onClose={onClose}>
      <p>
        Runner <span className="mono">{runner && short(runner.id)}</span> of {runner?.environmentId} ends, with all that runs in it and all of its files. What was printed is kept.
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
