import { pieces } from "../lib/visible";

/** SafeText shows text from other people, such as names, commands and reasons. Invisible characters are marked. */
export function SafeText({ text }: { text: string }) {
  const all = pieces(text);
  if (all.every((piece) => !piece.mark)) return text;
  return all.map((piece, at) =>
    piece.mark ? (
      <span key={at} className="unseen" title={`Invisible character ${piece.text}`}>
        {piece.text}
      </span>
    ) : (
      piece.text
    ),
  );
}
