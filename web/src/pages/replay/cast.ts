// Recordings as the server makes them: asciicast, version 2.

export interface Cast {
  columns: number;
  rows: number;
  events: readonly CastEvent[];
  /** Seconds until its last event. */
  duration: number;
}

export interface CastEvent {
  /** Seconds since the start. */
  at: number;
  text: string;
}

/** Reads a recording; pauses that are longer than `longest` seconds are shortened to it. */
export function readCast(text: string, longest = Infinity): Cast {
  const [first = "", ...rest] = text.split("\n");
  const header = JSON.parse(first) as { version?: unknown; width?: unknown; height?: unknown };
  if (header.version !== 2) throw new Error("this is no recording");
  const events: CastEvent[] = [];
  let before = 0;
  let at = 0;
  for (const line of rest) {
    if (line === "") continue;
    const [time, kind, data] = JSON.parse(line) as [unknown, unknown, unknown];
    if (kind !== "o" || typeof time !== "number" || typeof data !== "string") continue;
    at += Math.min(longest, Math.max(0, time - before));
    before = Math.max(before, time);
    events.push({ at, text: data });
  }
  return { columns: size(header.width, 120), rows: size(header.height, 32), events, duration: at };
}

function size(value: unknown, otherwise: number): number {
  return typeof value === "number" && value >= 1 && value <= 4096 ? Math.floor(value) : otherwise;
}

/** The number of events that have happened by then. */
export function happened(events: readonly CastEvent[], at: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle]!.at <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
