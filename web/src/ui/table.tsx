import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type CSSProperties, type ReactNode } from "react";
import { useNarrow } from "../lib/narrow";
import { Owner } from "./owner";
import type { Selection } from "./selection";

export interface Column<Row> {
  name: string;
  /** A track of a CSS grid: `minmax(8rem, 1fr)`. */
  width: string;
  /** Whether its cells hold buttons. */
  acts?: boolean;
  /** In which line of a card it is, from 0 on, where the window is narrow; without one it isn't. A table whose columns all have none scrolls sideways instead. */
  card?: number;
  cell: (row: Row) => ReactNode;
}

/** To which tenant rows belong, where that is worth saying. */
export const tenantColumn: Column<{ tenant: string }> = { name: "Tenant", width: "7rem", cell: (row) => <Owner tenant={row.tenant} /> };

export interface TableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  /** It isn't known yet which columns there are: the head keeps its place, and no row is shown. */
  pending?: boolean;
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** Of all rows, loaded or not; for whoever can't see the scroll bar. */
  total: number;
  /** The least width, under which it scrolls sideways. */
  least: string;
  /** Called when the end comes near. */
  onEnd?: () => void;
  /** Called with the first and the last row that exist, by their places, when these change. */
  onSeen?: (first: number, last: number) => void;
  foot?: ReactNode;
  /** Which rows are chosen, by checkboxes before them; without it there are none. */
  selection?: Selection<Row> | undefined;
  /** What can be done with those that are chosen. */
  actions?: ReactNode;
  empty: ReactNode;
}

const rowHeight = 44;
const cardLine = 30;
const cardSpace = 16; // above the first line, and below the last

/** A table in which only the rows that can be seen exist. */
export function Table<Row>({ label, columns, pending = false, rows: known, rowKey, total, least, onEnd, onSeen, foot, selection, actions, empty }: TableProps<Row>) {
  const rows = pending ? [] : known;
  const lines = linesOf(columns);
  const cards = useNarrow() && lines.length > 0;
  const height = cards ? cardSpace + cardLine * lines.length : rowHeight;
  const scroll = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => height,
    getItemKey: (index) => rowKey(rows[index]!),
    overscan: 8,
  });
  useEffect(() => virtual.measure(), [virtual, height]);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (rows.length > 0 && last >= rows.length - 30) onEnd?.();
  }, [last, rows.length, onEnd]);
  const first = items[0]?.index ?? 0;
  useEffect(() => onSeen?.(first, last), [first, last, onSeen]);
  const tracks = [...(selection ? ["1.25rem"] : []), ...(cards ? ["minmax(0, 1fr)"] : columns.map((column) => column.width))];
  const style = { "--columns": tracks.join(" "), "--least": cards ? "0" : least, "--height": `${height}px` } as CSSProperties;
  const cell = (column: Column<Row>, row: Row) => (
    <div role="cell" key={column.name} className={column.acts ? "acts" : undefined}>
      {column.cell(row)}
    </div>
  );
  return (
    <div className={`table card ${cards ? "cards" : ""}`} style={style}>
      <div className="table-scroll" ref={scroll} tabIndex={0} role="region" aria-label={label}>
        <div role="table" aria-label={label} aria-rowcount={total + 1}>
          <div role="rowgroup">
            <div className="table-head" role="row" aria-rowindex={1} style={{ visibility: pending ? "hidden" : undefined }}>
              {selection && <SelectAll of={selection} />}
              {columns.map((column) => (
                <span role="columnheader" key={column.name} className={cards ? "hidden-text" : undefined}>
                  {column.acts ? <span className="hidden-text">{column.name}</span> : column.name}
                </span>
              ))}
            </div>
          </div>
          <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
            {items.map((item) => (
              <div className="table-row" role="row" key={item.key} aria-rowindex={item.index + 2} style={{ transform: `translateY(${item.start}px)` }}>
                {selection && <Select of={selection} row={rows[item.index]!} />}
                {cards ? (
                  <div role="presentation" className="card-lines">
                    {lines.map((line, at) => (
                      <div role="presentation" key={at}>
                        {line.map((column) => cell(column, rows[item.index]!))}
                      </div>
                    ))}
                  </div>
                ) : (
                  columns.map((column) => cell(column, rows[item.index]!))
                )}
              </div>
            ))}
          </div>
        </div>
        {rows.length === 0 && empty}
      </div>
      <div className={`table-foot num ${selection ? "acting" : ""}`}>
        <span className="grow">{foot || "\u00a0"}</span>
        {selection && selection.chosen.length > 0 && (
          <>
            <span role="status">{selection.chosen.length} chosen</span>
            <button type="button" className="button small" onClick={() => selection.setAll(false)}>
              None
            </button>
            {actions}
          </>
        )}
      </div>
    </div>
  );
}

/** The columns by the lines of a card. */
function linesOf<Row>(columns: readonly Column<Row>[]): Column<Row>[][] {
  const lines: Column<Row>[][] = [];
  for (const column of columns) if (column.card !== undefined) (lines[column.card] ??= []).push(column);
  return lines;
}

/** Chooses all rows that are loaded. */
function SelectAll<Row>({ of }: { of: Selection<Row> }) {
  const some = of.chosen.length > 0 && !of.all;
  return (
    <span role="columnheader" className="selects">
      <input type="checkbox" aria-label="Choose all that are shown" checked={of.all} ref={(box) => void (box && (box.indeterminate = some))} onChange={(event) => of.setAll(event.target.checked)} />
    </span>
  );
}

/** Chooses a row; with Shift also those up to the one that was chosen before. */
function Select<Row>({ of, row }: { of: Selection<Row>; row: Row }) {
  return (
    <div role="cell" className="selects">
      {of.may(row) && <input type="checkbox" aria-label={`Choose ${of.nameOf(row)}`} checked={of.has(row)} onChange={(event) => of.set(row, event.target.checked, (event.nativeEvent as MouseEvent).shiftKey)} />}
    </div>
  );
}
