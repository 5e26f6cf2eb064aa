import type { MouseEvent } from "react";
import { Link } from "wouter";
import { asShown, type LogLine } from "../lib/loglines";
import { moment } from "../lib/format";
import { OutputLine } from "./outputline";

export interface LogRowProps {
  line: LogLine;
  wanted: string;
  /** The address of the replay at the line's moment; undefined: times aren't shown. */
  moment: string | undefined;
  /** Whether Tab comes to it: of all lines to one, from which the arrow keys lead on. */
  stop: boolean;
  onNumber: (event: MouseEvent, number: number) => void;
}

/** One line with its number. Number and time are drawn by the styles: a selection is without them. */
export function LogRow({ line, wanted, moment: replay, stop, onNumber }: LogRowProps) {
  const stderr = line.stream === "STDERR";
  return (
    <>
      <a className="line-number" tabIndex={stop ? 0 : -1} href={`#L${line.number}`} data-shown={line.number} aria-label={`Line ${line.number}${stderr ? ", standard error" : ""}`} onClick={(event) => onNumber(event, line.number)} />
      <span className="line-stream" data-shown={stderr ? "err" : ""} title={stderr ? "Standard error" : undefined} />
      {replay !== undefined && <Link className="line-time" tabIndex={-1} href={replay} data-shown={clock(line.at)} title={`${moment(line.at)}: show this moment in the replay`} aria-label={`Line ${line.number} in the replay`} />}
      <span className="line-text">
        <OutputLine line={asShown(line)} wanted={wanted} />
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
