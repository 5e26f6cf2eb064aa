import { useEffect, useEffectEvent, useState, type ReactNode } from "react";
import { Link, useLocation } from "wouter";
import { owns } from "../../lib/access";
import { request } from "../../lib/request";
import { useCaller } from "../../lib/caller";
import { count, duration, plural } from "../../lib/format";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { useAlerts, useEnvironments, type Pool } from "../../lib/pools";
import { Card, Dialog, Empty, Facts, Failure, Loading, Notice, Page } from "../../ui/parts";
import { Stack } from "../../ui/chart";
import { Offer } from "../../ui/offer";
import { Owner } from "../../ui/owner";
import { PoolBar, PoolCounts } from "../../ui/pool";
import { PoolReason, PoolState } from "../../ui/poolstate";
import { Unsaved } from "../../ui/unsaved";
import { changed, consequence, draftOf, EnvironmentFragment, type Parts } from "./draft";
import { EnvironmentFields } from "./form";
import { ImageState } from "./image";
import { useMachine, type Machine } from "./machine";
import { PutState } from "./putstate";
import { useDraft } from "./usedraft";

const EnvironmentQuery = graphql(
  `
    query Environment($id: ID!) {
      environment(id: $id) {
        ...EnvironmentParts
        startDurations {
          count
          p50Ms
          p99Ms
          maxMs
        }
        claimStats {
          claimed
          warm
          failed
          durations {
            p50Ms
            p99Ms
          }
        }
        poolHistory {
          idle
          claimed
          starting
        }
      }
    }
  `,
  [EnvironmentFragment],
);

/** Environment shows one environment: its pool, live, and the form with its configuration. */
export default function Environment({ id }: { id: string }) {
  const { caller, may, showTenants } = useCaller();
  const { data, error, reload } = useQuery(EnvironmentQuery, { id }, { every: 10_000 });
  const { environments } = useEnvironments();
  const alert = useAlerts().get(id);
  const machine = useMachine();
  const [deleting, setDeleting] = useState(false);
  const above = { title: "Overview", href: "/" };
  const environment = data?.environment;
  const pool = environments?.find((row) => row.id === id)?.pool;
  const outdated = pool && environment && pool.revision > environment.revision;
  useEffect(() => {
    if (outdated) reload();
  }, [outdated, reload]);
  if (!environment) {
    return (
      <Page title={id} above={above}>
        <Failure error={error} retry={reload} />
        {!data && !error && <Loading what={id} />}
        {data && (
          <Empty title="Environment not found">
            <p>It may have been deleted.</p>
            <Link href={may("change") ? "/new-environment" : "/"} className="button">
              {may("change") ? "Create an environment" : "All environments"}
            </Link>
          </Empty>
        )}
      </Page>
    );
  }
  const { startDurations: starts, claimStats: claims } = environment;
  const mine = may("change") && owns(caller, environment.tenant);
  return (
    <Page
      title={id}
      above={above}
      actions={
        <>
          <Offer to="use">
            <Link href={`/playground?environment=${encodeURIComponent(id)}`} className="button">
              Run a program
            </Link>
          </Offer>
          <Offer to="change">
            <Link href={`/new-environment?from=${encodeURIComponent(id)}`} className="button">
              Copy
            </Link>
          </Offer>
          {mine && (
            <button type="button" className="button danger" onClick={() => setDeleting(true)}>
              Delete …
            </button>
          )}
        </>
      }
    >
      <Card title="Pool" aside={pool && <PoolState pool={pool} alert={alert} />}>
        <div className="stack">
          {pool ? (
            <div className="stack tight">
              <PoolBar pool={pool} />
              <PoolCounts environment={id} pool={pool} />
            </div>
          ) : (
            <span className="soft">Counting …</span>
          )}
          {pool && <ImageState image={pool.image} served={!pool.reason} />}
          {pool && <PoolReason pool={pool} alert={alert} />}
          <Stack
            label="Idle, claimed and starting runners over time"
            layers={(["idle", "claimed", "starting"] as const).map((name) => ({ name, values: environment.poolHistory[name] }))}
          />
          <Facts>
            {[
              ["Claims", `${count(claims.claimed)}${claims.failed > 0 ? `, ${count(claims.failed)} failed` : ""}`],
              ["Served warm", claims.claimed > 0 ? `${Math.floor((claims.warm / claims.claimed) * 100)} %` : "–"],
              ["Claim duration", claims.claimed > 0 ? `${duration(claims.durations.p50Ms)}, p99 ${duration(claims.durations.p99Ms)}` : "–"],
              ["Runners started", count(starts.count)],
              ["Start duration", starts.count > 0 ? `${duration(starts.p50Ms)}, at most ${duration(starts.maxMs)}` : "–"],
              ["Revision", String(environment.revision)],
              ...(showTenants || !owns(caller, environment.tenant) ? [["Tenant", <Owner key="t" tenant={environment.tenant} shared={environment.shared} />] satisfies [string, ReactNode]] : []),
            ]}
          </Facts>
          <div className="row">
            <Link href={`/runners?environment=${encodeURIComponent(id)}`}>{`Runners of ${id}`}</Link>
            <Link href={`/executions?environment=${encodeURIComponent(id)}`}>{`Executions of ${id}`}</Link>
            {may("cluster") && <Link href={`/operations?environment=${encodeURIComponent(id)}`}>{`Scheduling of ${id}`}</Link>}
          </div>
        </div>
      </Card>
      <Edit stored={environment} pool={pool} machine={machine} readOnly={!mine} onSaved={reload} />
      <Delete id={id} open={deleting} pool={pool} onClose={() => setDeleting(false)} />
    </Page>
  );
}

export interface EditProps {
  stored: Parts;
  pool: Pool | undefined;
  machine: Machine;
  /** Whether the caller may only read it. */
  readOnly?: boolean;
  onSaved: () => void;
}

/**
 * Edit is the form of a stored environment. It saves only if the revision that it began with is
 * still current.
 */
export function Edit({ stored, pool, machine, readOnly = false, onSaved }: EditProps) {
  // The revision that the form is based on. A newer revision by someone else replaces it only while the form is
  // unchanged, so that no edit is lost.
  const [base, setBase] = useState(stored);
  const [newer, setNewer] = useState(false);
  const initial = draftOf(base);
  const { draft, change, wrong, refused, put, silent } = useDraft(initial, base.revision, machine);
  const fields = changed(initial, draft);
  const take = (parts: Parts) => {
    setBase(parts);
    setNewer(false);
    change(draftOf(parts));
    put.clear();
  };
  const arrived = useEffectEvent(() => {
    const other = stored.revision !== base.revision;
    if (other && fields.length === 0 && !put.busy) take(stored);
    else setNewer(other);
  });
  useEffect(() => arrived(), [stored]);
  const save = async () => {
    const saved = await put.run();
    if (saved) take(saved);
    onSaved();
  };
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Unsaved changes={!readOnly && fields.length > 0} />
      <Card title="Configuration">
        <div className="stack">
          {(newer || put.error?.code === "CONFLICT") && !put.busy && (
            <Notice kind="warn" action={<button type="button" className="button small" onClick={() => take(stored)}>Reload without my changes</button>}>
              Someone else changed this environment after revision {base.revision}, on which your changes are based. So they can't be saved.
            </Notice>
          )}
          <EnvironmentFields draft={draft} isNew={false} readOnly={readOnly} machine={machine} wrong={wrong} refused={refused} onChange={change} />
          <PutState silent={silent} error={put.error?.code === "CONFLICT" ? undefined : put.error} retry={() => void save()} />
          {!readOnly && (
            <div className="row">
              <button type="submit" className="button primary" disabled={put.busy || fields.length === 0}>
                Save
              </button>
              <button type="button" className="button" disabled={fields.length === 0} onClick={() => change(initial)}>
                Undo
              </button>
              <span className="soft small" role="status">
                {pool && consequence(fields, Number(draft.poolSize), pool)}
              </span>
            </div>
          )}
        </div>
      </Card>
    </form>
  );
}

const DeleteMutation = graphql(`
  mutation DeleteEnvironment($input: DeleteEnvironmentInput!) {
    deleteEnvironment(input: $input) {
      deleted
    }
  }
`);

/** Delete says what the deletion ends, and asks for confirmation. */
function Delete({ id, open, pool, onClose }: { id: string; open: boolean; pool: Pool | undefined; onClose: () => void }) {
  const [endClaimed, setEndClaimed] = useState(false);
  const [, navigate] = useLocation();
  const remove = useAction(async () => {
    await request(DeleteMutation, { input: { id, endClaimed } });
    navigate("/");
  });
  const idle = (pool?.idle ?? 0) + (pool?.starting ?? 0);
  const claimed = pool?.claimed ?? 0;
  return (
    <Dialog title={`Delete ${id}?`} open={open} onClose={onClose}>
      <p>
        This immediately deletes the environment{idle > 0 && ` and ${plural(idle, "idle runner")}`}.{" "}
        {claimed === 0
          ? "None of its runners is claimed."
          : endClaimed
            ? `${plural(claimed, "claimed runner")} and all programs in ${claimed === 1 ? "it" : "them"} will be ended too.`
            : `${plural(claimed, "claimed runner")} will continue until released or expired.`}{" "}
        Executions and their output are kept.
      </p>
      {claimed > 0 && (
        <label className="check">
          <input type="checkbox" checked={endClaimed} onChange={(event) => setEndClaimed(event.target.checked)} />
          End claimed runners as well
        </label>
      )}
      <Failure error={remove.error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" className="button danger" disabled={remove.busy} onClick={() => void remove.run()}>
          Delete {id}
        </button>
      </div>
    </Dialog>
  );
}
