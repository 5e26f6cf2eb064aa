import { useEffect } from "react";
import { Link, useLocation, useSearchParams } from "wouter";
import { useHistoryState } from "wouter/use-browser-location";
import { request } from "../../lib/request";
import { ReleaseMutation } from "../../lib/calls";
import { plural, short } from "../../lib/format";
import { useAction, useShown } from "../../lib/hooks";
import { useEnvironments } from "../../lib/pools";
import { Empty, Failure, Loading, Page } from "../../ui/parts";
import { claim, startShell } from "./shell";

/** Terminals opens a shell in a new runner of an environment, or in a claimed runner. */
export default function Terminals() {
  const { environments, error, reload } = useEnvironments();
  const [search] = useSearchParams();
  const [, navigate] = useLocation();
  const runner = search.get("runner");
  const clicked = useHistoryState<{ start: boolean } | null>()?.start ?? false; // opening the address alone starts nothing
  const shown = useShown();
  const open = useAction(async (where: { environment: string } | { runner: string }) => {
    const id = "runner" in where ? where.runner : await claim(where.environment);
    if (!shown() && "environment" in where) return void (await request(ReleaseMutation, { id }));
    const shell = await startShell(id);
    if (shown()) navigate(`/terminal/${shell}`, { replace: "runner" in where });
  });
  const { run } = open;
  useEffect(() => {
    if (runner && clicked) void run({ runner });
  }, [runner, clicked, run]);
  return (
    <Page title="Terminal">
      <Failure error={error} retry={reload} />
      <Failure error={open.error} retry={runner ? () => void run({ runner }) : undefined} />
      {runner && open.busy ? (
        <Loading what={`a shell in ${short(runner)}`} />
      ) : (
        <>
          {runner && (
            <p className="row" style={{ justifyContent: "flex-start" }}>
              <button type="button" className="button primary" onClick={() => void run({ runner })}>
                Open a shell in {short(runner)}
              </button>
            </p>
          )}
          <p className="soft">Open a shell in a new runner, claimed for you. The runner is released after 10 minutes without use.</p>
          {!environments && !error && <Loading what="the environments" />}
          {environments?.length === 0 && (
            <Empty title="No environments yet">
              <Link href="/new-environment" className="button primary">
                Create an environment
              </Link>
            </Empty>
          )}
          <div className="choices">
            {environments?.map((environment) => (
              <div className="card" key={environment.id}>
                <div>
                  <h2 className="break">{environment.id}</h2>
                  <span className="soft small num">{environment.pool.idle > 0 ? `${plural(environment.pool.idle, "warm runner")}` : "No warm runner; one will be started"}</span>
                </div>
                <div>
                  <button type="button" className="button" disabled={open.busy} aria-label={`Open a shell in ${environment.id}`} onClick={() => void run({ environment: environment.id })}>
                    Open a shell
                  </button>
                </div>
              </div>
            ))}
          </div>
        </>
      )}
    </Page>
  );
}
