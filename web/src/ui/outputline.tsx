import type { CSSProperties, ReactNode } from "react";
import { spans, type Style } from "../lib/ansi";
import type { Line } from "../lib/loglines";
import { missing } from "../lib/loss";
import { visible } from "../lib/visible";
import { SafeText } from "./safetext";

/** OutputLine shows one line of output as text with colours. */
export function OutputLine({ line, wanted }: { line: Line; wanted: string }) {
  if (line.lost !== undefined) return <span className="lost">{missing(line.lost.bytes, line.lost.cause)}</span>;
  const out = spans(line.text, line.style).map((span, key) => {
    const shown = marked(span.text, wanted);
    const look = lookOf(span.style);
    if (!look && !line.stderr) return typeof shown === "string" ? shown : <span key={key}>{shown}</span>;
    return (
      <span key={key} className={`${line.stderr ? "err " : ""}${look?.className ?? ""}`} style={look?.style}>
        {shown}
      </span>
    );
  });
  return out.length === 0 ? "\u200b" : out;
}

/** marked returns the text with the matches of a search marked. */
function marked(text: string, wanted: string): ReactNode {
  if (wanted === "") return visible(text) === text ? text : <SafeText text={text} />;
  const low = text.toLowerCase();
  const needle = wanted.toLowerCase();
  const out: ReactNode[] = [];
  let from = 0;
  for (let at = low.indexOf(needle); at >= 0; at = low.indexOf(needle, from)) {
    if (at > from) out.push(<SafeText key={`b${at}`} text={text.slice(from, at)} />);
    out.push(
      <mark key={at}>
        <SafeText text={text.slice(at, at + needle.length)} />
      </mark>,
    );
    from = at + needle.length;
  }
  if (from === 0) return visible(text) === text ? text : <SafeText text={text} />;
  out.push(<SafeText key="rest" text={text.slice(from)} />);
  return out;
}

/** lookOf returns the classes and colours of a style; undefined for plain text. */
function lookOf(style: Style): { className: string; style?: CSSProperties } | undefined {
  const { fg, bg, bold, dim, italic, underline, inverse } = style;
  if (fg === undefined && bg === undefined && !bold && !dim && !italic && !underline && !inverse) return undefined;
  const names = [bold && "b", dim && "dim", italic && "i", underline && "u", inverse && "inv"];
  if (typeof fg === "number") names.push(`fg${fg}`);
  if (typeof bg === "number") names.push(`bg${bg}`);
  const css: CSSProperties = {};
  if (typeof fg === "string") css.color = fg;
  if (typeof bg === "string") css.backgroundColor = bg;
  return { className: names.filter(Boolean).join(" "), style: css };
}
