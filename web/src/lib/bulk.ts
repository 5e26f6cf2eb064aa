import { ServerError } from "./request";

/** Tally counts the results of one action on many items. */
export interface Tally {
  done: number;
  /** Items that had already ended. */
  ended: number;
  failed: number;
  /** The number of failures by reason. */
  reasons: ReadonlyMap<string, number>;
  /** Items not tried, because the action was stopped. */
  left: number;
}

/** atOnce is the number of concurrent requests. */
export const atOnce = 4;

/** actOnAll acts on all items, four at a time, and reports after each. It never throws: it counts failures. */
export async function actOnAll<Item>(items: readonly Item[], act: (item: Item) => Promise<"done" | "ended">, report: (tally: Tally) => void, stop: AbortSignal): Promise<Tally> {
  const reasons = new Map<string, number>();
  const counts = { done: 0, ended: 0, failed: 0 };
  let next = 0;
  const tally = (): Tally => ({ ...counts, reasons: new Map(reasons), left: items.length - counts.done - counts.ended - counts.failed });
  const work = async () => {
    while (next < items.length && !stop.aborted) {
      const item = items[next++]!;
      try {
        counts[await act(item)]++;
      } catch (error) {
        counts.failed++;
        const reason = error instanceof ServerError ? error.message : String(error);
        reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
      }
      report(tally());
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return tally();
}

/** describeTally describes a tally: "3 cancelled, 1 had already ended, 2 failed: the server is busy". */
export function describeTally({ done, ended, failed, reasons, left }: Tally, did: string, had: string): string {
  const why = [...reasons].slice(0, 3).map(([reason, n]) => (reasons.size > 1 ? `${reason} (${n})` : reason));
  if (reasons.size > 3) why.push("other reasons");
  return [`${done} ${did}`, ended > 0 && `${ended} ${had}`, left > 0 && `${left} not tried`, failed > 0 && `${failed} failed: ${why.join("; ")}`].filter(Boolean).join(", ");
}
