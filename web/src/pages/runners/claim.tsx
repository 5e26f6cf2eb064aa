import { useCallback, useId, useRef, useState } from "react";
import { request } from "../../lib/request";
import { ReleaseMutation } from "../../lib/calls";
import { graphql } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { EnvironmentFilter } from "../../ui/filters";
import { Dialog, Failure } from "../../ui/parts";

const ClaimMutation = graphql(`
  mutation ClaimRunner($input: ClaimRunnerInput!) {
    claimRunner(input: $input) {
      runner {
        id
      }
    }
  }
`);

/** ClaimDialog claims a runner. While it can't, it says why; the button stays focusable. */
export function ClaimDialog({ open, environment, onClose }: { open: boolean; environment: string; onClose: () => void }) {
  const [chosen, setChosen] = useState("");
  const closings = useRef(0);
  const claim = useAction(async (environmentId: string, minutes: number) => {
    const before = closings.current;
    const labels = [{ name: "by", value: "dashboard" }];
    const { claimRunner } = await request(ClaimMutation, { input: { environmentId, inactivityTimeout: minutes * 60, waitFor: 10, labels } });
    if (closings.current === before) onClose();
    else if (claimRunner.runner) await request(ReleaseMutation, { id: claimRunner.runner.id }); // the dialog was closed meanwhile
  });
  const close = useCallback(() => {
    closings.current++;
    claim.clear();
    onClose();
  }, [claim.clear, onClose]);
  const value = chosen || environment;
  const why = useId();
  const form = useRef<HTMLFormElement>(null);
  const reason = claim.busy ? "Claiming a runner. This can take up to 10 seconds if none is idle." : value === "" ? "Choose the environment first." : undefined;
  return (
    <Dialog title="Claim a runner" open={open} onClose={close}>
      <form
        className="stack"
        ref={form}
        onSubmit={(event) => {
          event.preventDefault();
          if (value === "") form.current?.querySelector("select")?.focus();
          else void claim.run(value, Number(new FormData(event.currentTarget).get("minutes")));
        }}
      >
        <p className="soft">The runner is reserved for you until you release it, or until it has been unused for this time.</p>
        <div className="row" style={{ justifyContent: "flex-start" }}>
          <EnvironmentFilter value={value} onChange={setChosen} all="Choose an environment" />
          <label className="row tight">
            <span className="small">Ends after</span>
            <select name="minutes" className="select fit" defaultValue="10">
              <option value="10">10 minutes unused</option>
              <option value="60">an hour unused</option>
              <option value="1440">a day unused</option>
            </select>
          </label>
        </div>
        <Failure error={claim.error} />
        <div className="row">
          <span className="small soft grow" id={why} role="status">
            {reason}
          </span>
          <button type="button" className="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" className="button primary" aria-disabled={reason ? true : undefined} aria-describedby={why}>
            Claim it
          </button>
        </div>
      </form>
    </Dialog>
  );
}
