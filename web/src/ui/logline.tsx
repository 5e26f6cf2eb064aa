import type { MouseEvent } from "react";
import { Link } from "wouter";
import type { Style } from "../lib/ansi";
import { asShown, type LogLine } from "../lib/loglines";
import { moment } from "../lib/format";
import { OutputLine } from "./outputline";

export interface LogRowProps {
  line: LogLine;
  /** The style at its beginning. */
  style: Style;
  wanted: string;
  /** Whether its number is a link that puts the line into the address. */
  linked: boolean;
  /** Whether its time is shown. */
  timed: boolean;
  /** The address of the replay at the line's time; undefined shows the time without a link. */
  replay: string | undefined;
  /** Whether the line is the tab stop. One line is; the arrow keys move to the others. */
  stop: boolean;
  onNumber: (event: MouseEvent, number: number) => void;
}

/** LogRow is one line with its number. The style sheet draws number and time, so that a selection excludes them. */
export function LogRow({ line, style, wanted, linked, timed, replay, stop, onNumber }: LogRowProps) {
  const stderr = line.stream === "STDERR";
  const number = {
    className: "line-number",
    tabIndex: stop ? 0 : -1,
    "data-shown": line.number,
    "aria-label": `Line ${line.number}${stderr ? ", standard error" : ""}`,
    onClick: (event: MouseEvent) => onNumber(event, line.number),
  };
  const time = { className: "line-time", "data-shown": timeOfDay(line.at) };
  return (
    <>
      {linked ? <a {...number} href={`#L${line.number}`} /> : <button type="button" {...number} />}
      <span className="line-stream" data-shown={stderr ? "err" : ""} title={stderr ? "Standard error" : undefined} />
      {timed && (replay === undefined ? <span {...time} title={moment(line.at)} /> : <Link {...time} tabIndex={-1} href={replay} title={`${moment(line.at)}: show this moment in the replay`} aria-label={`Line ${line.number} in the replay`} />)}
      <span className="line-text">
        <OutputLine line={asShown(line, style)} wanted={wanted} />
        {line.truncated && <span className="lost"> … truncated; download the output for the rest</span>}
      </span>
    </>
  );
}

/** timeOfDay formats the time of day to the millisecond. */
export function timeOfDay(at: string): string {
  const time = new Date(at);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
