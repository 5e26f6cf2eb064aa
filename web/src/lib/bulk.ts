import { ServerError } from "./ask";

/** What became of many that were acted on. */
export interface Tally {
  done: number;
  /** Had ended before. */
  ended: number;
  failed: number;
  /** How many failed for each reason. */
  reasons: ReadonlyMap<string, number>;
  /** That nothing was tried with, since it was stopped. */
  left: number;
}

/** So many are asked for at once. */
export const atOnce = 4;

/** Acts on all items, a few at a time, and reports after each. It doesn't throw: what fails is counted. */
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

/** A tally in words: "3 cancelled, 1 had already ended, 2 failed: the server is busy". */
export function tallied({ done, ended, failed, reasons, left }: Tally, did: string, had: string): string {
  const why = [...reasons].slice(0, 3).map(([reason, n]) => (reasons.size > 1 ? `${reason} (${n})` : reason));
  if (reasons.size > 3) why.push("other reasons");
  return [`${done} ${did}`, ended > 0 && `${ended} ${had}`, left > 0 && `${left} not tried`, failed > 0 && `${failed} failed: ${why.join("; ")}`].filter(Boolean).join(", ");
}
