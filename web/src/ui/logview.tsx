import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useLayoutEffect, useRef, useState, type CSSProperties, type KeyboardEvent, type MouseEvent, type ReactNode } from "react";
import type { ServerError } from "../lib/request";
import { copyText } from "../lib/clipboard";
import { between, count } from "../lib/format";
import { rangeHash, readRange, type Range, type Stream } from "../lib/loglines";
import { useRemembered } from "../lib/remembered";
import type { SearchedLog } from "../lib/uselog";
import type { Found } from "../lib/usesearch";
import { LogRow } from "./logline";
import { Empty } from "./parts";
import { SafeText } from "./safetext";

export interface LogViewProps extends SearchedLog {
  /**
   * Set on the execution's own page: the address then contains the marked lines, and a line's time links to the same
   * moment of the replay.
   */
  own?: { id: string; began: string | null };
  label: string;
  tools?: ReactNode;
  /** Shown instead of lines while there are none. */
  nothing: ReactNode;
  height?: string;
}

/** Align says where in the view a row that is scrolled to appears. */
type Align = "auto" | "center" | "start" | "end";

/** lineHeight is the estimated height of a line in pixels, until it is measured. */
const lineHeight = 24;
/** The number of rows in the list. Buttons load the rows before and after: browsers can't draw 30 million pixels. */
export const listed = 50_000;
const again = 1_000; // ms until a failed request is repeated
const copied = "Copied";
const shortly = 4_000; // ms for which "Copied" is shown
const streams = [
  ["both", undefined],
  ["stdout", "STDOUT"],
  ["stderr", "STDERR"],
] as const;

/** LogView shows an output log of any size by pages from the server: numbered, searchable, with links to lines. */
export function LogView({ log, wanted, found, onWanted, onStream, own, label, tools, nothing, height }: LogViewProps) {
  const [wraps, setWraps] = useRemembered("log.wrap", true);
  const [times, setTimes] = useRemembered("log.times", false);
  const [hit, setHit] = useState(-1);
  const [marked, setMarked] = useState<Range | undefined>(() => (own ? readRange(window.location.hash) : undefined));
  const [following, setFollowing] = useState(marked === undefined);
  const [first, setFirst] = useState(0);
  const [target, setTarget] = useState<{ row: number; align: Align }>();
  const [focused, setFocused] = useState(-1); // the row that has, or had, the focus
  const focusing = useRef(false);
  const [said, setSaid] = useState("");
  const scroll = useRef<HTMLDivElement>(null);

  const { rows, show, find } = log;
  const { total } = rows;
  const begin = following ? Math.max(0, total - listed) : Math.min(first, Math.max(0, total - 1));
  const length = Math.min(listed, total - begin);
  const virtual = useVirtualizer({
    count: length,
    getScrollElement: () => scroll.current,
    estimateSize: () => lineHeight,
    overscan: 20,
  });
  useEffect(() => virtual.measure(), [virtual, wraps, times, log.stream, begin]);

  const items = virtual.getVirtualItems();
  const top = begin + (items[0]?.index ?? 0);
  const bottom = begin + (items.at(-1)?.index ?? -1) + 1;
  useEffect(() => show(top, bottom), [show, top, bottom, rows, total]);

  const toEnd = () => {
    const box = scroll.current;
    if (box) box.scrollTop = box.scrollHeight;
  };
  const size = virtual.getTotalSize();
  useLayoutEffect(() => {
    if (following) toEnd();
  }, [following, log.version, size]);

  /** goTo scrolls to a row. It stops following, and moves the list if the row lies outside. */
  const goTo = useCallback((row: number, align: Align = "center") => {
    setFollowing(false);
    setFirst((from) => (row >= from && row < from + listed ? from : Math.max(0, row - listed / 2)));
    setTarget({ row, align });
  }, []);
  useLayoutEffect(() => {
    if (target) virtual.scrollToIndex(target.row - begin, { align: target.align });
    // Scrolls once for each target.
  }, [target]);

  // The tab stop is the line that last had the focus, or the first visible one.
  const stop = items.some(({ index }) => begin + index === focused) ? focused : begin + (virtual.range?.startIndex ?? 0);
  useLayoutEffect(() => {
    const number = focusing.current && scroll.current?.querySelector<HTMLElement>(`[data-index="${focused - begin}"] .line-number`);
    if (!number) return; // not yet
    focusing.current = false;
    number.focus({ preventScroll: true });
  });

  // A link to lines shows them, also when the fragment changes on the open page.
  const linked = own !== undefined;
  useEffect(() => {
    if (!linked) return;
    const read = () => setMarked(readRange(window.location.hash));
    window.addEventListener("hashchange", read);
    return () => window.removeEventListener("hashchange", read);
  }, [linked]);
  const [shownMark, setShownMark] = useState<Range>();
  useEffect(() => {
    if (!log.ready || !marked || marked === shownMark) return;
    let timer: ReturnType<typeof setTimeout>;
    let left = false;
    const go = async () => {
      try {
        const row = await find(marked.from);
        if (left) return;
        setShownMark(marked);
        goTo(Math.min(row, Math.max(0, rows.total - 1)));
      } catch (error) {
        if (left) return;
        if ((error as ServerError).retryable) timer = setTimeout(() => void go(), again);
        else setSaid((error as ServerError).message);
      }
    };
    void go();
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [log.ready, marked, shownMark, find, goTo, rows]);

  /** mark marks lines and puts them into the address, without a new entry in the history. */
  const mark = (range: Range | undefined) => {
    const { pathname, search } = window.location;
    if (linked) window.history.replaceState(window.history.state, "", range ? rangeHash(range) : pathname + search);
    setMarked(range);
    setShownMark(range); // already visible
  };
  const onNumber = (event: MouseEvent, number: number) => {
    if (linked && (event.ctrlKey || event.metaKey)) return; // a new tab
    event.preventDefault();
    if (event.shiftKey && marked) mark({ from: Math.min(marked.from, number), to: Math.max(marked.from, number) });
    else mark(marked?.from === number && marked.to === number ? undefined : { from: number, to: number });
  };
  const onKey = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.key === "Escape" && marked) return mark(undefined);
    const line = (event.target as Element).closest<HTMLElement>(".output-line");
    if (!line || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      line.querySelector<HTMLElement>(event.key === "ArrowLeft" ? ".line-number" : ".line-time")?.focus();
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault(); // goTo scrolls
      const row = begin + Number(line.dataset.index) + (event.key === "ArrowUp" ? -1 : 1);
      if (row < begin || row >= begin + length) return;
      focusing.current = true;
      setFocused(row);
      goTo(row, "auto");
    }
  };

  const hits = found.numbers;
  /** visit goes to a match. Before the first and after the last one it wraps around. */
  const visit = (next: number) => {
    if (hits.length === 0) return;
    const at = (next + hits.length) % hits.length;
    setHit(at);
    find(hits[at]!).then(
      (row) => goTo(row),
      (error: ServerError) => setSaid(error.message),
    );
  };
  const copy = async () => {
    setSaid(""); // so that screen readers announce it each time
    try {
      await copyText(log.read(marked));
      setSaid(copied);
    } catch (error) {
      setSaid((error as Error).message);
    }
  };
  useEffect(() => {
    if (said !== copied) return;
    const timer = setTimeout(() => setSaid(""), shortly);
    return () => clearTimeout(timer);
  }, [said]);
  const digits = String(Math.max(total, 100)).length;
  return (
    <div>
      <div className="card-head output-tools" style={{ padding: "0.5rem 1rem", borderBottom: "1px solid var(--line)" }}>
        <form
          className="row tight"
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            visit(hit + 1);
          }}
        >
          <input
            className="input"
            type="search"
            placeholder="Search"
            aria-label="Search the output"
            value={wanted}
            maxLength={250}
            onChange={(event) => {
              onWanted(event.target.value);
              setHit(-1);
            }}
          />
          {wanted !== "" && (
            <>
              <span className="small soft num" role="status">
                {found.error ? <SafeText text={found.error.message} /> : words(found, hit)}
              </span>
              <button type="button" className="button small" onClick={() => visit(hit < 0 ? -1 : hit - 1)} aria-label="Previous match">
                ↑
              </button>
              <button type="submit" className="button small" aria-label="Next match">
                ↓
              </button>
            </>
          )}
        </form>
        <span className="grow" />
        <div className="segments" role="group" aria-label="Streams">
          {streams.map(([name, stream]) => (
            <button
              key={name}
              type="button"
              className="button small"
              aria-pressed={log.stream === stream}
              onClick={() => {
                onStream(stream);
                setHit(-1);
                setFirst(0);
                setShownMark(undefined); // the line has another row
                if (!marked) setFollowing(true);
              }}
            >
              {name}
            </button>
          ))}
        </div>
        <button type="button" className="button small" aria-pressed={wraps} onClick={() => setWraps(!wraps)}>
          Wrap
        </button>
        <button type="button" className="button small" aria-pressed={times} onClick={() => setTimes(!times)}>
          Timestamps
        </button>
        <button type="button" className="button small" disabled={total === 0} onClick={() => void copy()}>
          {marked ? (marked.from === marked.to ? `Copy line ${marked.from}` : `Copy lines ${marked.from}–${marked.to}`) : "Copy all"}
        </button>
        {tools}
      </div>
      <p className={said === "" ? "hidden-text" : "small soft output-said"} role="status">
        {said}
      </p>
      <div className={`output ${wraps ? "wraps" : ""}`} style={{ "--digits": digits, "--output-height": height } as CSSProperties}>
        {begin > 0 && (
          <button type="button" className="output-more" onClick={() => goTo(begin - 1, "end")}>
            Show the lines before {count(rows.get(begin)?.number ?? begin + 1)}
          </button>
        )}
        <div
          className="output-scroll"
          ref={scroll}
          tabIndex={0}
          role="log"
          aria-live="off"
          aria-label={label}
          onKeyDown={onKey}
          onScroll={(event) => {
            const box = event.currentTarget;
            const atEnd = begin + length === total && box.scrollHeight - box.scrollTop - box.clientHeight < 2 * lineHeight;
            if (atEnd === following) return;
            setFollowing(atEnd);
            setFirst(begin);
          }}
        >
          {total === 0 ? (
            log.ready && nothing
          ) : (
            <div
              className="output-lines"
              style={{ height: size }}
              onFocus={(event) => {
                const line = event.target.closest<HTMLElement>(".output-line");
                if (line) setFocused(begin + Number(line.dataset.index));
              }}
            >
              {items.map((item) => {
                const line = rows.get(begin + item.index);
                const number = line?.number ?? 0;
                const names = ["output-line", line ? "" : "loading", line?.stream === "STDERR" ? "stderr" : "", marked && number >= marked.from && number <= marked.to ? "marked" : "", number > 0 && hits[hit] === number ? "hit" : ""];
                return (
                  <div
                    key={item.key}
                    ref={wraps ? virtual.measureElement : undefined}
                    data-index={item.index}
                    data-line={line?.number}
                    className={names.filter(Boolean).join(" ")}
                    style={{ transform: `translateY(${item.start}px)` }}
                  >
                    {line ? <LogRow line={line} style={rows.style(begin + item.index)} wanted={wanted} linked={linked} timed={times} replay={own && replayOf(own.id, own.began, line.at)} stop={begin + item.index === stop} onNumber={onNumber} /> : "\u200b"}
                  </div>
                );
              })}
            </div>
          )}
        </div>
        {begin + length < total && (
          <button type="button" className="output-more" onClick={() => goTo(begin + length, "start")}>
            Show the lines after {count(rows.get(begin + length - 1)?.number ?? begin + length)}
          </button>
        )}
        {!following && total > 0 && (
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

/** NothingPrinted replaces an empty output log, of one stream or of both. */
export function NothingPrinted({ on, ended }: { on: Stream | undefined; ended: boolean }) {
  return <Empty title={on !== undefined ? `No output on ${on.toLowerCase()}` : ended ? "No output" : "No output yet"}>{!ended && <p>Output appears here live.</p>}</Empty>;
}

/** words describes the number of matches and the current one. */
export function words(found: Found, hit: number): string {
  const n = found.numbers.length;
  if (!found.done) return n === 0 ? "searching …" : `${count(n)} so far …`;
  if (n === 0) return "no matches";
  return `${hit < 0 ? "" : `${count(hit + 1)} of `}${count(n)}${found.many ? "+" : ""} ${n === 1 ? "line" : "lines"}`;
}

/** replayOf links to the replay at a line's time, plus 10 ms because times are rounded, so that the line is drawn. */
function replayOf(id: string, began: string | null, at: string): string {
  const seconds = began ? Math.max(0, between(began, at) / 1000) + 0.01 : 0;
  return `/executions/${id}/replay#t=${Number(seconds.toFixed(3))}`;
}
