import { moment } from "../../lib/format";
import { sentence } from "../../lib/outcome";
import { Notice } from "../../ui/parts";
import type { End } from "./session";

export interface EndedProps {
  end: End;
  /** Undefined once it is no longer claimed. */
  runner: { id: string; claim: { expiresAt: string | null } | null } | undefined;
  busy: boolean;
  onRelease: () => void;
  onShell: (runnerId: string) => void;
}

/** Ended shows the outcome of the shell. Its runner stays claimed: it shows until when, and offers what to do. */
export function Ended({ end, runner, busy, onRelease, onShell }: EndedProps) {
  const until = runner?.claim?.expiresAt;
  return (
    <Notice
      kind={end.outcome === "EXITED" ? "good" : "warn"}
      action={
        runner && (
          <span className="row tight">
            <button type="button" className="button danger" onClick={onRelease}>
              Release
            </button>
            <button type="button" className="button primary" disabled={busy} onClick={() => onShell(runner.id)}>
              New shell
            </button>
          </span>
        )
      }
    >
      {sentence(end)} {runner && (until ? `The runner is still claimed. If unused, it is released at ${moment(until)}.` : "The runner is still claimed, until it is released.")}
    </Notice>
  );
}
