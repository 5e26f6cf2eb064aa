import { after, bare, clean, hold, plain, type Style } from "./ansi";
import type { LossCause } from "./loss";

export type Stream = "STDOUT" | "STDERR";

export interface Part {
  stderr: boolean;
  text: string;
}

/** One line of what was printed, by whichever streams. */
export interface Line {
  parts: Part[];
  /** The style with which it begins. */
  style: Style;
  /** What is missing here; then there is no text. */
  lost?: { bytes: number; cause: LossCause };
}

/** What is kept to be shown; the whole is on the server. */
export interface Bounds {
  lines: number;
  chars: number;
  /** A longer line is broken. */
  lineChars: number;
}

const defaults: Bounds = { lines: 50_000, chars: 3_000_000, lineChars: 4_000 };

/**
 * Output as lines. What comes is only queued; flush, once per frame, takes it
 * in. Where more comes than can be kept, the oldest goes, first of what is
 * queued, which then costs nothing.
 */
export class Output {
  lines: Line[] = [];
  /** Lines that were left out before the first. */
  dropped = 0;
  /** Whether anything was left out. */
  cut = false;
  /** Characters that came. */
  seen = 0;

  private readonly bounds: Bounds;
  private queue: { stderr: boolean; text: string }[] = [];
  private queued = 0;
  private chars = 0;
  private style: Style = plain;
  private readonly held: [string, string] = ["", ""]; // of stdout, of stderr
  private open = false; // the last line goes on
  private returned = false; // the carriage is at its beginning

  constructor(bounds: Partial<Bounds> = {}) {
    this.bounds = { ...defaults, ...bounds };
  }

  push(stream: Stream, text: string) {
    this.queue.push({ stderr: stream === "STDERR", text });
    this.queued += text.length;
    this.seen += text.length;
    while (this.queued > this.bounds.chars && this.queue.length > 1) {
      this.queued -= this.queue.shift()!.text.length;
      this.forget();
    }
  }

  /** Says that bytes are missing here. */
  lost(bytes: number, cause: LossCause) {
    this.flush();
    this.open = false;
    this.lines.push({ parts: [], style: this.style, lost: { bytes, cause } });
  }

  /** Takes in what is queued, and returns whether there was anything. */
  flush(): boolean {
    if (this.queue.length === 0) return false;
    const queue = this.queue;
    this.queue = [];
    this.queued = 0;
    for (const { stderr, text } of queue) this.take(stderr, text);
    this.trim();
    return true;
  }

  /** What is left out is all that there was until now: lines before it would not meet those after it. */
  private forget() {
    this.dropped += this.lines.length;
    this.lines = [];
    this.chars = 0;
    this.open = this.returned = false;
    this.cut = true;
  }

  private take(stderr: boolean, arrived: string) {
    const at = stderr ? 1 : 0;
    const [complete, held] = hold(this.held[at] + arrived);
    this.held[at] = held;
    const text = clean(complete).replaceAll("\r\n", "\n");
    let from = 0;
    while (from < text.length) {
      let end = text.indexOf("\n", from);
      const ends = end >= 0;
      if (!ends) end = text.length;
      for (let begin = from, to = begin; begin < end; begin = to) {
        to = pieceEnd(text, begin, end, this.bounds.lineChars);
        this.add(stderr, text.slice(begin, to));
      }
      if (ends) {
        this.ensure();
        this.open = this.returned = false;
      }
      from = end + 1;
    }
  }

  private add(stderr: boolean, text: string) {
    if (text === "") return;
    const back = text.length > 1 ? text.lastIndexOf("\r", text.length - 2) : -1;
    const line = this.ensure(text.length);
    if (this.returned || back >= 0) {
      this.style = after(text.slice(0, back + 1), this.style);
      text = text.slice(back + 1);
      line.parts = [];
      line.style = this.style;
    }
    this.returned = text.endsWith("\r");
    if (this.returned) text = text.slice(0, -1);
    this.style = after(text, this.style);
    this.chars += text.length;
    const last = line.parts.at(-1);
    if (last && last.stderr === stderr) last.text += text;
    else line.parts.push({ stderr, text });
  }

  /** The line that goes on, if it has room for more, or a new one. */
  private ensure(more = 0): Line {
    let line = this.lines.at(-1);
    if (line && this.open && !this.returned && more > 0 && lengthOf(line) + more > this.bounds.lineChars) this.open = false;
    if (!line || !this.open) {
      line = { parts: [], style: this.style };
      this.lines.push(line);
      this.open = true;
    }
    return line;
  }

  private trim() {
    const { lines, chars } = this.bounds;
    if (this.lines.length <= lines * 1.1 && this.chars <= chars * 1.1) return;
    let from = Math.max(0, this.lines.length - lines);
    let kept = 0;
    for (let i = this.lines.length - 1; i >= from; i--) {
      kept += lengthOf(this.lines[i]!);
      if (kept > chars) from = i + 1;
    }
    from = Math.min(from, this.lines.length - 1);
    this.dropped += from;
    this.lines = this.lines.slice(from);
    this.chars = this.lines.reduce((sum, line) => sum + lengthOf(line), 0);
    this.cut = true;
  }
}

/** Where a piece of at most so many characters ends: not within a colour, nor within a character that is two of them. */
function pieceEnd(text: string, begin: number, end: number, most: number): number {
  const to = begin + most;
  if (to >= end) return end;
  const colour = text.lastIndexOf("\x1b", to - 1);
  if (colour > begin && text.indexOf("m", colour) >= to) return colour;
  return most > 1 && (text.charCodeAt(to - 1) & 0xfc00) === 0xd800 ? to - 1 : to;
}

function lengthOf(line: Line): number {
  let length = 0;
  for (const part of line.parts) length += part.text.length;
  return length;
}

export function textOfLine(line: Line): string {
  return line.parts.map((part) => bare(part.text)).join("");
}

/** The places of the lines that have a text in them, in any case. */
export function find(lines: readonly Line[], wanted: string): number[] {
  const needle = wanted.toLowerCase();
  if (needle === "") return [];
  const hits: number[] = [];
  for (const [at, line] of lines.entries()) if (textOfLine(line).toLowerCase().includes(needle)) hits.push(at);
  return hits;
}
