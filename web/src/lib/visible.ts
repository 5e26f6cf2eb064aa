// Characters that aren't what is seen of them: those that turn others around (as
// in "Trojan Source"), hide, or fill. What others wrote is shown with a mark in
// their place: a name is what it looks like.

const lying =
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const joiner = /[\u200c\u200d]/;
const seen = /[^\x00-\x7f\u200b-\u200f\u2028-\u202e\u2060-\u206f]/;

/** A piece of text, or the mark of a character that isn't seen. */
export interface Piece {
  text: string;
  mark: boolean;
}

/** The text, with its marks apart. */
export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  let from = 0;
  for (const { 0: found, index } of text.matchAll(lying)) {
    // Scripts and pictures need joiners between their characters.
    const joins = joiner.test(found) && seen.test(text.charAt(index - 1)) && seen.test(text.charAt(index + 1));
    if (joins) continue;
    if (index > from) out.push({ text: text.slice(from, index), mark: false });
    out.push({ text: `U+${found.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}`, mark: true });
    from = index + found.length;
  }
  if (from < text.length) out.push({ text: text.slice(from), mark: false });
  return out;
}

/** The same in one string, for titles and the like: "safe[U+202E]txt.exe". */
export function visible(text: string): string {
  return text.search(lying) < 0 ? text : pieces(text).map((piece) => (piece.mark ? `[${piece.text}]` : piece.text)).join("");
}
