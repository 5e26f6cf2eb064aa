import type { MouseEvent } from "react";
import { Link } from "wouter";
import type { Style } from "../lib/ansi";
import { asShown, type LogLine } from "../lib/loglines";
import { moment } from "../lib/format";
import { OutputLine } from "./outputline";

export interface LogRowProps {
  line: LogLine;
  /** The style with which it begins. */
  style: Style;
  wanted: string;
  /** Whether its number is a link to it in the page's address. */
  linked: boolean;
  /** Whether its time is shown. */
  timed: boolean;
  /** The address of the replay at the line's moment; undefined: its time is no link. */
  replay: string | undefined;
  /** Whether Tab comes to it: of all lines to one, from which the arrow keys lead on. */
  stop: boolean;
  onNumber: (event: MouseEvent, number: number) => void;
}

/** One line with its number. Number and time are drawn by the styles: a selection is without them. */
export function LogRow({ line, style, wanted, linked, timed, replay, stop, onNumber }: LogRowProps) {
  const stderr = line.stream === "STDERR";
  const number = {
    className: "line-number",
    tabIndex: stop ? 0 : -1,
    "data-shown": line.number,
    "aria-label": `Line ${line.number}${stderr ? ", standard error" : ""}`,
    onClick: (event: MouseEvent) => onNumber(event, line.number),
  };
  const time = { className: "line-time", "data-shown": clock(line.at) };
  return (
    <>
      {linked ? <a {...number} href={`#L${line.number}`} /> : <button type="button" {...number} />}
      <span className="line-stream" data-shown={stderr ? "err" : ""} title={stderr ? "Standard error" : undefined} />
      {timed && (replay === undefined ? <span {...time} title={moment(line.at)} /> : <Link {...time} tabIndex={-1} href={replay} title={`${moment(line.at)}: show this moment in the replay`} aria-label={`Line ${line.number} in the replay`} />)}
      <span className="line-text">
        <OutputLine line={asShown(line, style)} wanted={wanted} />
        {line.truncated && <span className="lost"> … cut; download the output for the rest</span>}
      </span>
    </>
  );
}

/** The time of day, to the millisecond. */
export function clock(at: string): string {
  const time = new Date(at);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
