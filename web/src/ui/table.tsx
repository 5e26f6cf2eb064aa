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
  /**
   * The line of a card that shows the column in a narrow window, from 0; undefined hides it there. A table without any
   * such column scrolls sideways instead.
   */
  card?: number;
  cell: (row: Row) => ReactNode;
}

/** tenantColumn shows the tenant of each row. */
export const tenantColumn: Column<{ tenant: string }> = { name: "Tenant", width: "7rem", cell: (row) => <Owner tenant={row.tenant} /> };

export interface TableProps<Row> {
  label: string;
  columns: readonly Column<Row>[];
  /** Whether the columns aren't known yet: the header reserves its place, and no row is shown. */
  pending?: boolean;
  rows: readonly Row[];
  rowKey: (row: Row) => string;
  /** The number of all rows, loaded or not, for screen readers. */
  total: number;
  /** The width below which the table scrolls sideways. */
  least: string;
  /** Called when the last loaded rows come into view. */
  onEnd?: () => void;
  /** Called with the indices of the first and the last rendered row, when these change. */
  onSeen?: (first: number, last: number) => void;
  foot?: ReactNode;
  /** The selected rows; undefined shows no checkboxes. */
  selection?: Selection<Row> | undefined;
  /** The actions on the selected rows. */
  actions?: ReactNode;
  empty: ReactNode;
}

/** rowHeight, cardLine and cardSpace are in pixels. */
const rowHeight = 44;
const cardLine = 30;
const cardSpace = 16; // above the first line, and below the last

/** Table is a table that renders only the visible rows. */
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
            <span role="status">{selection.chosen.length} selected</span>
            <button type="button" className="button small" onClick={() => selection.setAll(false)}>
              Clear
            </button>
            {actions}
          </>
        )}
      </div>
    </div>
  );
}

/** linesOf groups the columns by the lines of a card. */
function linesOf<Row>(columns: readonly Column<Row>[]): Column<Row>[][] {
  const lines: Column<Row>[][] = [];
  for (const column of columns) if (column.card !== undefined) (lines[column.card] ??= []).push(column);
  return lines;
}

/** SelectAll selects all loaded rows. */
function SelectAll<Row>({ of }: { of: Selection<Row> }) {
  const some = of.chosen.length > 0 && !of.all;
  return (
    <span role="columnheader" className="selects">
      <input type="checkbox" aria-label="Select all loaded rows" checked={of.all} ref={(box) => void (box && (box.indeterminate = some))} onChange={(event) => of.setAll(event.target.checked)} />
    </span>
  );
}

/** Select selects a row; with Shift also the rows up to the previously selected one. */
function Select<Row>({ of, row }: { of: Selection<Row>; row: Row }) {
  return (
    <div role="cell" className="selects">
      {of.may(row) && <input type="checkbox" aria-label={`Select ${of.nameOf(row)}`} checked={of.has(row)} onChange={(event) => of.set(row, event.target.checked, (event.nativeEvent as MouseEvent).shiftKey)} />}
    </div>
  );
}
