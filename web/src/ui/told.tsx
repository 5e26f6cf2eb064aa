import { pieces } from "../lib/visible";

/** What others wrote: names, commands, reasons. What isn't seen of it has a mark. */
export function Told({ text }: { text: string }) {
  const all = pieces(text);
  if (all.every((piece) => !piece.mark)) return text;
  return all.map((piece, at) =>
    piece.mark ? (
      <span key={at} className="unseen" title={`An invisible character, ${piece.text}`}>
        {piece.text}
      </span>
    ) : (
      piece.text
    ),
  );
}
