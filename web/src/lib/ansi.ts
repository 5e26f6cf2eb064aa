// Turns a program's output into text that is safe to show. It interprets colours and removes every other
// control sequence. Nothing here creates HTML.

/** Style is the look of a text, as the control sequences before it set it. */
export interface Style {
  fg?: string | number | undefined;
  bg?: string | number | undefined;
  bold?: boolean | undefined;
  dim?: boolean | undefined;
  italic?: boolean | undefined;
  underline?: boolean | undefined;
  inverse?: boolean | undefined;
}

export const plain: Style = Object.freeze({});

/** Span is a piece of text in one style. */
export interface Span {
  text: string;
  style: Style;
}

const control = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]/;
// CSI, then strings (OSC, DCS, SOS, PM, APC), then two-character sequences, then single controls.
const sequences = /\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]+[0-~]|\x1b[0-~]?|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f]/g;
const sgr = /\x1b\[([0-9;:]*)m/g;
const unfinished = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$/;
/**
 * longestUnfinished is the number of characters that complete searches. A longer sequence counts as
 * text.
 */
const longestUnfinished = 4096;

/** complete removes an incomplete control sequence from the end of a text. */
export function complete(text: string): string {
  const from = Math.max(0, text.length - longestUnfinished);
  if (text.indexOf("\x1b", from) < 0) return text;
  const match = unfinished.exec(text.slice(from));
  return match ? text.slice(0, from + match.index) : text;
}

/** clean removes every control sequence except colours, tabs and line ends. */
export function clean(text: string): string {
  if (!control.test(text)) return text;
  return text.replace(sequences, (found) => (found.length > 2 && found[1] === "[" && found.endsWith("m") && /^[0-9;:]*$/.test(found.slice(2, -1)) ? found : ""));
}

/** bare removes the colours from a cleaned text. */
export function bare(text: string): string {
  return text.includes("\x1b") ? text.replace(sgr, "") : text;
}

/** after returns the style at the end of a text that begins with the given style. */
export function after(text: string, style: Style): Style {
  if (!text.includes("\x1b")) return style;
  for (const match of text.matchAll(sgr)) style = apply(style, match[1] ?? "");
  return style;
}

/** spans splits a text into pieces of one style each. */
export function spans(text: string, style: Style): Span[] {
  if (!text.includes("\x1b")) return text === "" ? [] : [{ text, style }];
  const out: Span[] = [];
  let at = 0;
  for (const match of text.matchAll(sgr)) {
    if (match.index > at) out.push({ text: text.slice(at, match.index), style });
    style = apply(style, match[1] ?? "");
    at = match.index + match[0].length;
  }
  if (at < text.length) out.push({ text: text.slice(at), style });
  return out;
}

/** apply returns a style after an SGR sequence with these parameters. It ignores unknown codes. */
function apply(style: Style, parameters: string): Style {
  const codes = parameters === "" ? [0] : parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  const next: Style = { ...style };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!;
    if (code === 0) for (const key of Object.keys(next) as (keyof Style)[]) delete next[key];
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = undefined;
    else if (code === 23) next.italic = undefined;
    else if (code === 24) next.underline = undefined;
    else if (code === 27) next.inverse = undefined;
    else if (code >= 30 && code <= 37) next.fg = code - 30;
    else if (code >= 40 && code <= 47) next.bg = code - 40;
    else if (code >= 90 && code <= 97) next.fg = code - 82;
    else if (code >= 100 && code <= 107) next.bg = code - 92;
    else if (code === 39) next.fg = undefined;
    else if (code === 49) next.bg = undefined;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes.slice(i + 1));
      if (code === 38) next.fg = colour;
      else next.bg = colour;
      i += used;
    }
  }
  return next;
}

/** extended parses a colour of the 256-colour palette or a 24-bit colour, and returns the number of codes read. */
function extended(codes: readonly number[]): [colour: string | number | undefined, used: number] {
  const byte = (n: number | undefined) => Math.min(255, Math.max(0, n ?? 0));
  if (codes[0] === 2) return [`rgb(${byte(codes[1])}, ${byte(codes[2])}, ${byte(codes[3])})`, 4];
  if (codes[0] !== 5) return [undefined, codes.length];
  const n = byte(codes[1]);
  if (n < 16) return [n, 2];
  if (n >= 232) return [`rgb(${(n - 232) * 10 + 8}, ${(n - 232) * 10 + 8}, ${(n - 232) * 10 + 8})`, 2];
  const level = (part: number) => (part === 0 ? 0 : part * 40 + 55);
  const c = n - 16;
  return [`rgb(${level(Math.floor(c / 36))}, ${level(Math.floor(c / 6) % 6)}, ${level(c % 6)})`, 2];
}
