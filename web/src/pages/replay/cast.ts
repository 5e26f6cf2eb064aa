import { bare, clean } from "../../lib/ansi";

// Reads the server's recordings: asciicast, version 2.

/** Cast is a recording with its first screen size. */
export interface Cast extends Size {
  events: readonly CastEvent[];
  /** The original time of each event in seconds, with unshortened pauses. */
  recorded: readonly number[];
  /** The time of the last event in seconds. */
  duration: number;
}

/** CastEvent is a text to draw or a new size of the screen, at a time in seconds since the start. */
export type CastEvent = { at: number; text: string } | ({ at: number } & Size);

/** Size is the size of a screen in characters. */
export interface Size {
  columns: number;
  rows: number;
}

/** readCast parses a recording. It shortens pauses to at most `longest` seconds. */
export function readCast(text: string, longest = Infinity): Cast {
  const [first = "", ...rest] = text.split("\n");
  const header = JSON.parse(first) as { version?: unknown; width?: unknown; height?: unknown };
  if (header.version !== 2) throw new Error("The file isn't an asciicast, version 2");
  const events: CastEvent[] = [];
  const recorded: number[] = [];
  let before = 0;
  let at = 0;
  for (const line of rest) {
    if (line === "") continue;
    const [time, kind, data] = JSON.parse(line) as [unknown, unknown, unknown];
    if (typeof time !== "number" || typeof data !== "string") continue;
    const what = drawn(kind, data);
    if (!what) continue;
    at += Math.min(longest, Math.max(0, time - before));
    before = Math.max(before, time);
    events.push({ at, ...what });
    recorded.push(before);
  }
  return { columns: size(header.width, 120), rows: size(header.height, 32), events, recorded, duration: at };
}

/** drawn returns what an event changes on the screen; undefined for events that are ignored. */
function drawn(kind: unknown, data: string): { text: string } | Size | undefined {
  if (kind === "o") return { text: data };
  // The server's only markers say where output is missing.
  if (kind === "m") return { text: `\r\n\x1b[33m[${bare(clean(data))}]\x1b[0m\r\n` };
  const [, columns, rows] = (kind === "r" && /^(\d{1,4})x(\d{1,4})$/.exec(data)) || [];
  if (!columns || !rows || size(Number(columns), 0) === 0 || size(Number(rows), 0) === 0) return undefined;
  return { columns: Number(columns), rows: Number(rows) };
}

/** size returns a number of columns or rows, or otherwise if it is invalid. */
function size(value: unknown, otherwise: number): number {
  return typeof value === "number" && value >= 1 && value <= 4096 ? Math.floor(value) : otherwise;
}

/** positionOf converts a time of the execution to a position in the recording, whose pauses can be shorter. */
export function positionOf({ events, recorded, duration }: Cast, moment: number): number {
  const next = recorded.findLastIndex((at) => at <= moment) + 1;
  if (next === 0) return Math.min(moment, events[0]?.at ?? 0);
  return Math.min(events[next - 1]!.at + moment - recorded[next - 1]!, events[next]?.at ?? duration);
}

/** momentOf converts a position to the time of the execution; it is the inverse of positionOf. */
export function momentOf({ events, recorded }: Cast, position: number): number {
  const next = eventsUntil(events, position);
  return next === 0 ? position : recorded[next - 1]! + position - events[next - 1]!.at;
}

/** readMoment parses the time in a link: `#t=12.5`, in seconds. */
export function readMoment(hash: string): number | undefined {
  const [, seconds] = /^#t=(\d{1,9}(?:\.\d{1,6})?)$/.exec(hash) ?? [];
  return seconds === undefined ? undefined : Number(seconds);
}

/** eventsUntil returns the number of events up to a time. */
export function eventsUntil(events: readonly CastEvent[], at: number): number {
  let low = 0;
  let high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle]!.at <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
