import { duration, plural } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";

export const WaitedForSubscription = graphql(`
  subscription WaitedFor($environmentId: ID!) {
    poolStatus(environmentId: $environmentId) {
      size
      idle
      starting
      claimed
      reason
      image {
        state
      }
    }
  }
`);
export type WaitedFor = ResultOf<typeof WaitedForSubscription>["poolStatus"];

/** Turn is a claim's position in the queue. */
export interface Turn {
  position: number | null;
  estimatedWaitMs: number | null;
}

/** whyWaiting says why no runner is available yet, and how long that may last. */
export function whyWaiting(pool: WaitedFor | undefined, turn: Turn): string {
  return [`${reason(pool)}.`, ahead(turn)].filter(Boolean).join(" ");
}

/** reason says why the pool has no idle runner. The server's own reason takes precedence. */
function reason(pool: WaitedFor | undefined): string {
  if (!pool) return "No runner is idle";
  if (pool.reason) return pool.reason.replace(/\.$/, "");
  if (pool.image?.state === "PULLING") return "The environment's image is being pulled";
  if (pool.starting > 0) return `${plural(pool.starting, "runner")} ${pool.starting === 1 ? "is" : "are"} being started${pool.size === 0 ? ": the pool keeps no warm runners" : ""}`;
  if (pool.size === 0) return "The pool keeps no warm runners; one must be started";
  if (pool.claimed > 0) return `No runner is idle: ${plural(pool.claimed, "runner")} ${pool.claimed === 1 ? "is" : "are"} in use`;
  return "No runner is idle";
}

/** ahead says how many claims come first; "" without a position. */
function ahead({ position, estimatedWaitMs }: Turn): string {
  if (position === null) return "";
  const when = estimatedWaitMs === null ? "" : `, in about ${duration(Math.max(1_000, Math.round(estimatedWaitMs / 1_000) * 1_000))}`;
  return position === 1 ? `You are next${when}.` : `${position - 1} ${position === 2 ? "claim is" : "claims are"} before you${when}.`;
}
