import { Link } from "wouter";
import { lasting, moment } from "../../lib/format";
import { useNow } from "../../lib/time";
import { visible } from "../../lib/visible";
import { Labels } from "../../ui/labels";
import { SafeText } from "../../ui/safetext";
import type { RunnerRow } from "./userunners";

/** heldBy returns the table's address with a filter by holder added. */
function heldBy(params: URLSearchParams, holder: string): string {
  const after = new URLSearchParams(params);
  after.set("held-by", holder);
  return `/runners?${after}`;
}

/** Holder shows a claim's holder, labels, age and expiry; without a claim, the runner's message. */
export function Holder({ runner, params }: { runner: Pick<RunnerRow, "message" | "claim">; params: URLSearchParams }) {
  const now = useNow();
  const { claim } = runner;
  if (!claim) return <span className="soft">{runner.message ? <SafeText text={runner.message} /> : "–"}</span>;
  return (
    <span className="num" title={`since ${claim.claimedAt}`}>
      {claim.holder !== null && (
        <Link className="chip mono" href={heldBy(params, claim.holder)} title={`show runners whose holder or labels contain ${visible(claim.holder)}`}>
          <SafeText text={claim.holder} />
        </Link>
      )}
      <Labels labels={claim.labels} path="/runners" params={params} />
      {lasting(claim.claimedAt, now)}, {claim.expiresAt ? `until ${moment(claim.expiresAt)}` : "no expiry"}
    </span>
  );
}
