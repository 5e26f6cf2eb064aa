import { Link } from "wouter";
import { lasting, moment } from "../../lib/format";
import { useNow } from "../../lib/time";
import { visible } from "../../lib/visible";
import { Labels } from "../../ui/labels";
import { Told } from "../../ui/told";
import type { RunnerRow } from "./userunners";

/** The address of the table with its filters, and this one. */
function heldBy(params: URLSearchParams, holder: string): string {
  const after = new URLSearchParams(params);
  after.set("held-by", holder);
  return `/runners?${after}`;
}

/** Who holds a runner, since when and until when; or what it waits for. */
export function Holder({ runner, params }: { runner: Pick<RunnerRow, "message" | "claim">; params: URLSearchParams }) {
  const now = useNow();
  const { claim } = runner;
  if (!claim) return <span className="soft">{runner.message ? <Told text={runner.message} /> : "–"}</span>;
  return (
    <span className="num" title={`since ${claim.claimedAt}`}>
      {claim.holder !== null && (
        <Link className="chip mono" href={heldBy(params, claim.holder)} title={`show what is held by names with ${visible(claim.holder)}`}>
          <Told text={claim.holder} />
        </Link>
      )}
      <Labels labels={claim.labels} path="/runners" params={params} />
      {lasting(claim.claimedAt, now)}, {claim.expiresAt ? `until ${moment(claim.expiresAt)}` : "for good"}
    </span>
  );
}
