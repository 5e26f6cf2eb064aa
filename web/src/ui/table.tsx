import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type CSSProperties, type ReactNode } from "react";
import { Owner } from "./owner";

export interface Column<Row> {
  name: string;
  /** A track of a CSS grid: `minmax(8rem, 1fr)`. */
  width: string;
  /** Whether its cells hold buttons. */
  acts?: boolean;
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
  empty: ReactNode;
}

const rowHeight = 44;

/** A table in which only the rows that can be seen exist. */
export function Table<Row>({ label, columns, pending = false, rows: known, rowKey, total, least, onEnd, onSeen, foot, empty }: TableProps<Row>) {
  const rows = pending ? [] : known;
  const scroll = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => rowHeight,
    getItemKey: (index) => rowKey(rows[index]!),
    overscan: 8,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (rows.length > 0 && last >= rows.length - 30) onEnd?.();
  }, [last, rows.length, onEnd]);
  const first = items[0]?.index ?? 0;
  useEffect(() => onSeen?.(first, last), [first, last, onSeen]);
  const style = { "--columns": columns.map((column) => column.width).join(" "), "--least": least } as CSSProperties;
  return (
    <div className="table card" style={style}>
      <div className="table-scroll" ref={scroll} tabIndex={0} role="region" aria-label={label}>
        <div role="table" aria-label={label} aria-rowcount={total + 1}>
          <div role="rowgroup">
            <div className="table-head" role="row" aria-rowindex={1} style={{ visibility: pending ? "hidden" : undefined }}>
              {columns.map((column) => (
                <span role="columnheader" key={column.name}>
                  {column.acts ? <span className="hidden-text">{column.name}</span> : column.name}
                </span>
              ))}
            </div>
          </div>
          <div role="rowgroup" style={{ height: virtual.getTotalSize(), position: "relative" }}>
            {items.map((item) => (
              <div className="table-row" role="row" key={item.key} aria-rowindex={item.index + 2} style={{ transform: `translateY(${item.start}px)` }}>
                {columns.map((column) => (
                  <div role="cell" key={column.name} className={column.acts ? "acts" : undefined}>
                    {column.cell(rows[item.index]!)}
                  </div>
                ))}
              </div>
            ))}
          </div>
        </div>
        {rows.length === 0 && empty}
      </div>
      <div className="table-foot num">{foot || "\u00a0"}</div>
    </div>
  );
}
