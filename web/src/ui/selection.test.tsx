import { act, cleanup, fireEvent, render, renderHook, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { ServerError } from "../lib/request";
import { BulkDialog } from "./bulk";
import { useSelection } from "./selection";

afterEach(cleanup);

interface Row {
  id: string;
  ended?: boolean;
}
const rows = (...ids: string[]): Row[] => ids.map((id) => ({ id, ended: id === "x" }));
const hook = (initialProps: Row[]) => renderHook((all: Row[]) => useSelection(all, (row) => !row.ended, (row) => row.id), { initialProps });
const ids = (of: ReturnType<typeof hook>["result"]) => of.current.chosen.map(({ id }) => id).join("");

test("selected rows stay selected across changes, until they can't be selected", () => {
  const { result, rerender } = hook(rows("a", "b", "x", "c"));
  act(() => result.current.set({ id: "b" }, true, false));
  rerender(rows("n", "a", "b", "c"));
  expect(ids(result)).toBe("b");
  rerender([{ id: "b", ended: true }, { id: "c" }]);
  expect(ids(result)).toBe("");
});

test("Shift selects and deselects a range, without unselectable rows", () => {
  const { result } = hook(rows("a", "b", "x", "c", "d"));
  act(() => result.current.set({ id: "d" }, true, true)); // there is none before
  expect(ids(result)).toBe("d");
  act(() => result.current.set({ id: "b" }, true, true));
  expect(ids(result)).toBe("bcd");
  act(() => result.current.set({ id: "c" }, false, true));
  expect(ids(result)).toBe("d");
});

test("one checkbox selects all loaded rows", () => {
  const { result, rerender } = hook(rows("a", "x", "b"));
  act(() => result.current.setAll(true));
  expect(result.current.all).toBe(true);
  rerender(rows("n", "a", "x", "b"));
  expect([ids(result), result.current.all]).toEqual(["ab", false]);
  act(() => result.current.setAll(false));
  expect(ids(result)).toBe("");
  rerender([]);
  expect(result.current.all).toBe(false);
});

test("many are ended after a confirmation, and each result is reported", async () => {
  const onDone = vi.fn();
  const onClose = vi.fn();
  const act = vi.fn(async (row: Row) => {
    if (row.id === "c") throw new ServerError("it is busy");
    return row.id === "b" ? ("ended" as const) : ("done" as const);
  });
  render(
    <BulkDialog rows={rows("a", "b", "c")} title="Cancel 3 executions?" agree="Cancel 3" keep="Let them run" nameOf={(row) => `program ${row.id}`} act={act} did="cancelled" had="had already ended" onClose={onClose} onDone={onDone}>
      They end.
    </BulkDialog>,
  );
  screen.getByText("program c");
  expect(act).not.toHaveBeenCalled();
  fireEvent.click(screen.getByRole("button", { name: "Cancel 3", hidden: true }));
  await screen.findByText("1 cancelled, 1 had already ended, 1 failed: it is busy.");
  expect(onDone).toHaveBeenCalledOnce();
  fireEvent.click(screen.getByRole("button", { name: "Close", hidden: true }));
  expect(onClose).toHaveBeenCalledOnce();
});
