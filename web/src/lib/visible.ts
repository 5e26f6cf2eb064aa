// Text from other people can contain invisible characters and ones that change the text direction (as in "Trojan
// Source"). The dashboard shows a mark in their place, so that a name is what it looks like.

const lying =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
/** joiner matches characters that are invisible but valid between the letters of some scripts. */
const joiner = /[\u200c\u200d]/;
const seen = /[^\x00-\x7f\u200b-\u200f\u2028-\u202e\u2060-\u206f]/;

/** Piece is a piece of text, or the mark of an invisible character. */
export interface Piece {
  text: string;
  mark: boolean;
}

/** pieces splits a text into visible text and marks. */
export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  let from = 0;
  for (const { 0: found, index } of text.matchAll(lying)) {
    // Some scripts and emoji need joiners between their characters.
    const joins = joiner.test(found) && seen.test(text.charAt(index - 1)) && seen.test(text.charAt(index + 1));
    if (joins) continue;
    if (index > from) out.push({ text: text.slice(from, index), mark: false });
    out.push({ text: `U+${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`, mark: true });
    from = index + found.length;
  }
  if (from < text.length) out.push({ text: text.slice(from), mark: false });
  return out;
}

/** visible returns the text with marks in one string, for titles: "safe[U+202E]txt.exe". */
export function visible(text: string): string {
  return text.search(lying) < 0 ? text : pieces(text).map((piece) => (piece.mark ? `[${piece.text}]` : piece.text)).join("");
}
