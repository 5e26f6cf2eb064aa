import { useRef, useState } from "react";

/** Which rows of a table are chosen. */
export interface Selection<Row> {
  /** Those that are, in the table's order. A row that can't be chosen any more isn't among them. */
  chosen: readonly Row[];
  has: (row: Row) => boolean;
  may: (row: Row) => boolean;
  /** What a row is called. */
  nameOf: (row: Row) => string;
  /** Chooses a row, or not; with a range also those between it and the one before. */
  set: (row: Row, on: boolean, range: boolean) => void;
  /** Chooses all that are loaded, or none. */
  setAll: (on: boolean) => void;
  all: boolean;
}

/** Keeps what is chosen by ids, whatever comes and goes meanwhile. */
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
