// What runs uses, as it is measured again and again.

/** How much processor time was used up to a moment; both in milliseconds. */
export interface Sample {
  cpu: number;
  at: number;
}

/** A sample, and how much of a processor was used since the one before; 1 is all of one. */
export interface Measured extends Sample {
  share: number | undefined;
}

/** The next one; the same where it was measured when the last one was. */
export function measured(before: Measured | undefined, now: Sample): Measured {
  if (!before || now.at < before.at) return { ...now, share: undefined };
  if (now.at === before.at) return before;
  return { ...now, share: Math.max(0, now.cpu - before.cpu) / (now.at - before.at) };
}

/** "12 %" of one processor; more than one is above 100 %. */
export function percent(share: number | undefined): string {
  return share === undefined ? "–" : `${Math.round(share * 100)} %`;
}
