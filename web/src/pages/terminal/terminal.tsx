import { lazy, Suspense, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import type { ServerError } from "../../lib/request";
import { short } from "../../lib/format";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery, useShown } from "../../lib/hooks";
import { Empty, Failure, Loading, Page } from "../../ui/parts";
import { ReleaseDialog } from "../../ui/release";
import { Ended } from "./ended";
import { FilePanel } from "./files";
import type { End } from "./session";
import { startShell } from "./shell";

const View = lazy(() => import("./view"));

const TerminalQuery = graphql(`
  query Terminal($id: ID!) {
    execution(id: $id) {
      id
      state
      environmentId
      runnerId
      runner {
        id
        state
        claim {
          expiresAt
        }
      }
    }
  }
`);

const every = 3_000; // ms between two queries of the claim, after the shell has ended

/** Terminal shows an execution on a terminal, with the files of its runner. */
export default function Terminal({ id }: { id: string }) {
  const [end, setEnd] = useState<End>();
  const [gone, setGone] = useState(false);
  const { data, error, reload } = useQuery(TerminalQuery, { id }, end && !gone ? { every } : {});
  const [failure, setFailure] = useState<ServerError>();
  const [releasing, setReleasing] = useState(false);
  const [, navigate] = useLocation();
  const execution = data?.execution;
  const shown = useShown();
  const again = useAction(async (runnerId: string) => {
    const shell = await startShell(runnerId);
    if (shown()) navigate(`/terminal/${shell}`);
  });
  const held = execution?.runner?.state === "CLAIMED";
  useEffect(() => setGone(execution !== undefined && !held), [execution, held]);

  const above = { title: "Terminal", href: "/terminal" };
  if (!execution) {
    return (
      <Page title="Terminal" above={above}>
        {error?.code === "EXECUTION_NOT_FOUND" ? (
          <Empty title="Execution not found">
            <Link href="/terminal" className="button">
              Open a shell
            </Link>
          </Empty>
        ) : error ? (
          <Failure error={error} retry={reload} />
        ) : (
          <Loading what="the terminal" />
        )}
      </Page>
    );
  }
  const runner = held ? execution.runner! : undefined;
  return (
    <Page
      title={`${execution.environmentId}, runner ${short(execution.runnerId)}`}
      above={above}
      actions={
        <>
          <Link className="button" href={`/executions/${id}`}>
            Open execution
          </Link>
          {runner && !end && (
            <button type="button" className="button danger" onClick={() => setReleasing(true)}>
              Release the runner …
            </button>
          )}
        </>
      }
    >
      <Failure error={failure ?? again.error} />
      <ReleaseDialog runner={releasing ? { id: execution.runnerId, environmentId: execution.environmentId } : undefined} onClose={() => setReleasing(false)} onReleased={reload} />
      {end && <Ended end={end} runner={runner} busy={again.busy} onRelease={() => setReleasing(true)} onShell={(runnerId) => void again.run(runnerId)} />}
      <div className="terminal-view">
        <Suspense fallback={<Loading what="the terminal" />}>
          <View
            id={id}
            onEnd={(ended) => {
              setEnd(ended);
              reload();
            }}
            onError={setFailure}
          />
        </Suspense>
        <FilePanel runnerId={execution.runnerId} live={!end} gone={!runner} />
      </div>
    </Page>
  );
}
