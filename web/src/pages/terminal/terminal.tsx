import { lazy, Suspense, useState } from "react";
import { Link, useLocation } from "wouter";
import type { ServerError } from "../../lib/ask";
import { short } from "../../lib/format";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { Empty, Failure, Loading, Notice, Page } from "../../ui/parts";
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

const every = 3_000; // ms between two looks at the claim, once nothing here prolongs it

/** An execution on a terminal, beside the files of its runner. */
export default function Terminal({ id }: { id: string }) {
  const [end, setEnd] = useState<End>();
  const { data, error, reload } = useQuery(TerminalQuery, { id }, end ? { every } : {});
  const [failure, setFailure] = useState<ServerError>();
  const [releasing, setReleasing] = useState(false);
  const [, navigate] = useLocation();
  const execution = data?.execution;
  const again = useAction(async (runnerId: string) => navigate(`/terminal/${await startShell(runnerId)}`));

  const above = { title: "Terminal", href: "/terminal" };
  if (!execution) {
    return (
      <Page title="Terminal" above={above}>
        {error?.code === "EXECUTION_NOT_FOUND" ? (
          <Empty title="There is no such execution (any more)">
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
  const runner = execution.runner?.state === "CLAIMED" ? execution.runner : undefined;
  return (
    <Page
      title={`${execution.environmentId}, runner ${short(execution.runnerId)}`}
      above={above}
      actions={
        <>
          <Link className="button" href={`/executions/${id}`}>
            All about it
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
        {runner ? <FilePanel runnerId={runner.id} live={!end} /> : <Notice>The runner is gone, and its files with it.</Notice>}
      </div>
    </Page>
  );
}
