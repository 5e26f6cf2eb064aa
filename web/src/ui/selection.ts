import { useRef, useState } from "react";

/** Selection is the selected rows of a table. */
export interface Selection<Row> {
  /** The selected rows in the table's order, without rows that can no longer be selected. */
  chosen: readonly Row[];
  has: (row: Row) => boolean;
  may: (row: Row) => boolean;
  /** Returns a row's name. */
  nameOf: (row: Row) => string;
  /** Selects or deselects a row; with `range` also the rows between it and the previous one. */
  set: (row: Row, on: boolean, range: boolean) => void;
  /** Selects all loaded rows, or none. */
  setAll: (on: boolean) => void;
  all: boolean;
}

/** useSelection keeps the selection by ids, across changes of the rows. */
export function useSelection<Row extends { id: string }>(rows: readonly Row[], may: (row: Row) => boolean, nameOf: (row: Row) => string): Selection<Row> {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const last = useRef<string>(undefined);
  const able = rows.filter(may);
  const chosen = able.filter((row) => ids.has(row.id));
  const set = (row: Row, on: boolean, range: boolean) => {
    const from = range ? able.findIndex(({ id }) => id === last.current) : -1;
    const to = able.findIndex(({ id }) => id === row.id);
    const between = from < 0 ? [row] : able.slice(Math.min(from, to), Math.max(from, to) + 1);
    const after = new Set(chosen.map(({ id }) => id));
    for (const { id } of between) on ? after.add(id) : after.delete(id);
    last.current = row.id;
    setIds(after);
  };
  const setAll = (on: boolean) => {
    last.current = undefined;
    setIds(new Set(on ? able.map(({ id }) => id) : []));
  };
  return { chosen, has: (row) => ids.has(row.id), may, nameOf, set, setAll, all: able.length > 0 && chosen.length === able.length };
}
