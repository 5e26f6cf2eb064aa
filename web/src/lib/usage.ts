// CPU usage from repeated measurements.

/** Sample is the processor time used up to a moment; both in milliseconds. */
export interface Sample {
  cpu: number;
  at: number;
}

/** Measured is a sample with the share of a processor used since the previous one; 1 is one full processor. */
export interface Measured extends Sample {
  share: number | undefined;
}

/** measured adds a sample. A sample with the time of the last one returns the last one. */
export function measured(before: Measured | undefined, now: Sample): Measured {
  if (!before || now.at < before.at) return { ...now, share: undefined };
  if (now.at === before.at) return before;
  return { ...now, share: Math.max(0, now.cpu - before.cpu) / (now.at - before.at) };
}

/** percent formats a share of one processor, "12 %"; several processors exceed 100 %. */
export function percent(share: number | undefined): string {
  return share === undefined ? "–" : `${Math.round(share * 100)} %`;
}
