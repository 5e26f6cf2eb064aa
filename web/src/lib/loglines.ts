import { request, ServerError } from "./request";
import { after, bare, clean, complete, plain, type Style } from "./ansi";
import { graphql, type ResultOf } from "./graphql";
import type { LossCause } from "./loss";

export const LinesQuery = graphql(`
  query Lines($id: ID!, $from: Int64, $skip: Int64, $last: Boolean, $maxLines: Int, $stream: OutputStream) {
    execution(id: $id) {
      lines(from: $from, skip: $skip, last: $last, maxLines: $maxLines, stream: $stream) {
        lines {
          number
          stream
          text
          truncated
          open
          at
          lostBytes
          lostCause
        }
        before
        total
        counted
        more
        next
        cursor
      }
    }
  }
`);
export type LinePage = NonNullable<ResultOf<typeof LinesQuery>["execution"]>["lines"];
export type LogLine = LinePage["lines"][number];

export type Stream = ReturnType<typeof graphql.scalar<"OutputStream">>;

/** Line is a line to show: text with colours. */
export interface Line {
  stderr: boolean;
  text: string;
  /** The style at its beginning. */
  style: Style;
  /** The output that is missing here; such a line has no text. */
  lost?: { bytes: number; cause: LossCause };
}

/** textOfLine returns a line without its colours, for the clipboard. */
export function textOfLine(line: Line): string {
  return bare(line.text);
}

/** Wanted selects a page of lines: from a line number, after a number of rows, or the last ones. */
export type Wanted = { from: number } | { skip: number } | { last: true };

export const pageLines = 200;

/** noExecution returns the server's error for an execution that is no longer kept. */
export const noExecution = () => new ServerError("The execution doesn't exist or is no longer kept.", "EXECUTION_NOT_FOUND");

/** requestLines queries a page of lines. It throws a ServerError. */
export async function requestLines(id: string, wanted: Wanted, stream: Stream | undefined, signal?: AbortSignal, maxLines = pageLines): Promise<LinePage> {
  const { execution } = await request(LinesQuery, { id, ...wanted, maxLines, stream: stream ?? null }, signal);
  if (!execution) throw noExecution();
  return execution.lines;
}

/**
 * asShown converts a line for display: only the text after its last carriage return, with colours as the only
 * sequences.
 */
export function asShown(line: LogLine, style: Style = plain): Line {
  if (line.lostBytes > 0) return { stderr: false, text: "", style, lost: { bytes: line.lostBytes, cause: line.lostCause ?? "UNKNOWN" } };
  const text = (line.open ? complete(line.text) : line.text).replace(/\r+$/, "");
  const begin = text.lastIndexOf("\r") + 1;
  return { stderr: line.stream === "STDERR", text: clean(text.slice(begin)), style: after(text.slice(0, begin), style) };
}

/** Rows caches some rows of a long list. A row is the position of a line among the lines of the shown streams. */
export class Rows {
  /** The number of rows. */
  total = 0;
  private readonly known = new Map<number, { line: LogLine; style: Style; version: number }>();
  private version = 0;

  get(row: number): LogLine | undefined {
    return this.known.get(row)?.line;
  }

  /**
   * style returns the style at a row's beginning. Colours continue across lines, as far as the lines before are
   * known.
   */
  style(row: number): Style {
    return this.known.get(row)?.style ?? plain;
  }

  /** put adds a page. */
  put(page: LinePage) {
    this.total = Math.max(this.total, page.total, page.before + page.lines.length);
    const previous = this.known.get(page.before - 1);
    let style = previous ? after(previous.line.text, previous.style) : plain;
    for (const [at, line] of page.lines.entries()) {
      this.known.set(page.before + at, { line, style, version: this.version });
      style = after(line.text, style);
    }
  }

  /** outdate marks open lines as outdated, because more was printed. */
  outdate() {
    this.version++;
  }

  /** missing returns the first row in [from, to) that is unknown or outdated. */
  missing(from: number, to: number): number | undefined {
    for (let row = Math.max(0, from); row < Math.min(to, this.total); row++) {
      const known = this.known.get(row);
      if (!known || (known.line.open && known.version < this.version)) return row;
    }
    return undefined;
  }

  /** trim drops rows far from the shown ones if more than `most` are known. */
  trim(from: number, to: number, most = 4_000) {
    if (this.known.size <= most) return;
    for (const row of this.known.keys()) if (row < from - most / 4 || row > to + most / 4) this.known.delete(row);
  }
}

/** Range is the lines that a link marks: `#L120` or `#L120-L140`. */
export interface Range {
  from: number;
  to: number;
}

/** readRange parses the lines in a link; undefined if it marks none. */
export function readRange(hash: string): Range | undefined {
  const [, first, second] = /^#L(\d{1,15})(?:-L(\d{1,15}))?$/.exec(hash) ?? [];
  if (first === undefined) return undefined;
  const [a, b] = [Number(first), Number(second ?? first)];
  return a < 1 || b < 1 ? undefined : { from: Math.min(a, b), to: Math.max(a, b) };
}

/** rangeHash is the inverse of readRange. */
export function rangeHash({ from, to }: Range): string {
  return from === to ? `#L${from}` : `#L${from}-L${to}`;
}
