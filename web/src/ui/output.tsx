import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useMemo, useRef, useState, type CSSProperties, type ReactNode } from "react";
import { count, plural } from "../lib/format";
import { find, type Line, type Output } from "../lib/output";
import { OutputLine } from "./outputline";

export interface OutputViewProps {
  output: Output;
  /** Changes when the output does. */
  version: number;
  /** Whether more may come. */
  live: boolean;
  label: string;
  tools?: ReactNode;
  /** What stands there as long as there is nothing. */
  nothing: ReactNode;
  height?: string;
}

const lineHeight = 20;
type Shown = "both" | "stdout" | "stderr";

/** What a program printed: in colours, searchable, with the end in sight while more comes. */
export function OutputView({ output, version, live, label, tools, nothing, height }: OutputViewProps) {
  const [wraps, setWraps] = useState(true);
  const [shown, setShown] = useState<Shown>("both");
  const [wanted, setWanted] = useState("");
  const [hit, setHit] = useState(0);
  const [following, setFollowing] = useState(true);
  const scroll = useRef<HTMLDivElement>(null);

  // version stands for the lines, which change in place.
  const lines = useMemo(() => only(output.lines, shown), [output, version, shown]);
  const hits = useMemo(() => find(lines, wanted), [lines, wanted]);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => lineHeight,
    overscan: 20,
  });
  useEffect(() => virtual.measure(), [virtual, wraps, shown]);

  const toEnd = () => {
    const box = scroll.current;
    if (box) box.scrollTop = box.scrollHeight;
  };
  const size = virtual.getTotalSize();
  useLayoutEffect(() => {
    if (following && live) toEnd();
  }, [following, live, version, size]);

  const goTo = (next: number) => {
    if (hits.length === 0) return;
    const at = (next + hits.length) % hits.length;
    setHit(at);
    setFollowing(false);
    virtual.scrollToIndex(hits[at]!, { align: "center" });
  };

  return (
    <div>
      <div className="card-head output-tools" style={{ padding: "0.5rem 1rem", borderBottom: "1px solid var(--line)" }}>
        <form
          className="row tight"
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            goTo(hit + 1);
          }}
        >
          <input
            className="input"
            type="search"
            placeholder="Search"
            aria-label="Search the output"
            value={wanted}
            onChange={(event) => {
              setWanted(event.target.value);
              setHit(-1);
            }}
          />
          {wanted !== "" && (
            <>
              <span className="small soft num" role="status">
                {hits.length === 0 ? `in none of ${plural(lines.length, "line")}` : `${hit < 0 ? "" : `${hit + 1} of `}${count(hits.length)} ${hits.length === 1 ? "line" : "lines"}`}
              </span>
              {hits.length === 0 ? (
                <button type="button" className="button small" onClick={() => setWanted("")}>
                  Clear
                </button>
              ) : (
                <>
                  <button type="button" className="button small" onClick={() => goTo(hit - 1)} aria-label="Previous match">
                    ↑
                  </button>
                  <button type="submit" className="button small" aria-label="Next match">
                    ↓
                  </button>
                </>
              )}
            </>
          )}
        </form>
        <span className="grow" />
        <div className="segments" role="group" aria-label="Streams">
          {(["both", "stdout", "stderr"] as const).map((stream) => (
            <button key={stream} type="button" className="button small" aria-pressed={shown === stream} onClick={() => setShown(stream)}>
              {stream}
            </button>
          ))}
        </div>
        <button type="button" className="button small" aria-pressed={wraps} onClick={() => setWraps(!wraps)}>
          Wrap
        </button>
        {tools}
      </div>
      {output.cut && (
        <p className="small soft" style={{ padding: "0.375rem 1rem" }}>
          Only the latest {count(output.lines.length)} lines are shown here; the download has them all.
        </p>
      )}
      <div className={`output ${wraps ? "wraps" : ""}`} style={height ? ({ "--output-height": height } as CSSProperties) : undefined}>
        <div
          className="output-scroll"
          ref={scroll}
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={label}
          onScroll={(event) => {
            const box = event.currentTarget;
            const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 2 * lineHeight;
            if (atEnd !== following) setFollowing(atEnd);
          }}
        >
          {lines.length === 0 ? (
            nothing
          ) : (
            <div className="output-lines" style={{ height: size }}>
              {virtual.getVirtualItems().map((item) => {
                const line = lines[item.index]!;
                return (
                  <div
                    key={item.key}
                    ref={wraps ? virtual.measureElement : undefined}
                    data-index={item.index}
                    data-line={output.dropped + item.index}
                    className={`output-line ${stderrOnly(line) ? "stderr" : ""} ${hits[hit] === item.index ? "hit" : ""}`}
                    style={{ transform: `translateY(${item.start}px)` }}
                  >
                    <OutputLine line={line} wanted={wanted} />
                  </div>
                );
              })}
            </div>
          )}
        </div>
        {!following && lines.length > 0 && (
          <button
            type="button"
            className="button small jump"
            onClick={() => {
              setFollowing(true);
              toEnd();
            }}
          >
            Jump to the end
          </button>
        )}
      </div>
    </div>
  );
}

function stderrOnly(line: Line): boolean {
  return line.parts.length > 0 && line.parts.every((part) => part.stderr);
}

function only(lines: readonly Line[], shown: Shown): readonly Line[] {
  if (shown === "both") return lines.slice();
  const stderr = shown === "stderr";
  const out: Line[] = [];
  for (const line of lines) {
    const parts = line.parts.filter((part) => part.stderr === stderr);
    if (parts.length > 0) out.push({ ...line, parts });
  }
  return out;
}
