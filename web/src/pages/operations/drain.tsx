import type { ReactNode } from "react";
import { Link } from "wouter";
import { request } from "../../lib/request";
import { moment, plural } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { Dialog, Facts, Failure, Notice, Card, Tag } from "../../ui/parts";

export const DrainingFragment = graphql(`
  fragment DrainingParts on Draining {
    since
    claimed
    leaving
    executions
  }
`);
export type Draining = ResultOf<typeof DrainingFragment>;

const DrainMutation = graphql(`
  mutation Drain($draining: Boolean!) {
    drainCluster(input: { draining: $draining }) {
      cluster {
        kind
      }
    }
  }
`);

/** useDrain drains the cluster or ends the drain, and then calls done. */
function useDrain(draining: boolean, done: () => void) {
  return useAction(async () => {
    await request(DrainMutation, { draining });
    done();
  });
}

/** Progress shows what a drain still waits for. */
export function Progress({ draining }: { draining: Draining }) {
  const left: [string, ReactNode][] = [
    [draining.claimed, "Claimed", <Link key="c" href="/runners?state=CLAIMED">{plural(draining.claimed, "runner")}</Link>] as const,
    [draining.leaving, "Stopping", plural(draining.leaving, "runner")] as const,
    [draining.executions, "Executions", plural(draining.executions, "execution")] as const,
  ]
    .filter(([n]) => n > 0)
    .map(([, name, text]) => [name, text]);
  return (
    <Card title="Drain" aside={<Tag tone={left.length > 0 ? "busy" : "good"}>{left.length > 0 ? "Draining" : "Drained"}</Tag>}>
      <div className="stack">
        <p>
          Started {moment(draining.since)}. A server restart doesn't end it. {left.length > 0 ? "Claimed runners continue until they are released." : "No runner is left: you can stop the server or the machine."}
        </p>
        {left.length > 0 && <Facts>{left}</Facts>}
      </div>
    </Card>
  );
}

/** EndDrain is the button that ends the drain, without a question. */
export function EndDrain({ onDone }: { onDone: () => void }) {
  const end = useDrain(false, onDone);
  return (
    <>
      <button type="button" className="button primary" disabled={end.busy} onClick={() => void end.run()}>
        End the drain
      </button>
      <Failure error={end.error} />
    </>
  );
}

export interface DrainDialogProps {
  open: boolean;
  onClose: () => void;
  onDone: () => void;
}

/** DrainDialog says what a drain does, and asks for confirmation. */
export function DrainDialog({ open, onClose, onDone }: DrainDialogProps) {
  const drain = useDrain(true, () => {
    onDone();
    onClose();
  });
  return (
    <Dialog title="Drain the cluster" open={open} onClose={onClose}>
      <Notice kind="warn">New claims wait and then fail.</Notice>
      <p>Idle runners stop immediately. Claimed runners continue until they are released. The drain continues after a restart, until you end it.</p>
      <Failure error={drain.error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Not now
        </button>
        <button type="button" className="button primary" disabled={drain.busy} onClick={() => void drain.run()}>
          Drain the cluster
        </button>
      </div>
    </Dialog>
  );
}
