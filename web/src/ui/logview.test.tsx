import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { timeOfDay, LogRow } from "./logline";
import { LogView, words, type LogViewProps } from "./logview";
import { ServerError } from "../lib/request";
import { Rows, type LogLine } from "../lib/loglines";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  localStorage.clear();
});

const line: LogLine = { number: 12, stream: "STDERR", text: "oh no", truncated: false, open: false, at: "2026-11-27T10:00:01.500Z", lostBytes: 0, lostCause: null };

test("a line's number, time and stream have accessible names and aren't part of its text", () => {
  const onNumber = vi.fn();
  const { container } = render(<LogRow line={line} style={{}} wanted="" linked timed replay="/executions/1/replay#t=1.5" stop onNumber={onNumber} />);
  expect(container.textContent).toBe("oh no");
  const number = screen.getByRole("link", { name: "Line 12, standard error" });
  expect([number.getAttribute("href"), number.dataset.shown]).toEqual(["#L12", "12"]);
  expect(container.querySelector<HTMLElement>(".line-stream")!.dataset.shown).toBe("err");
  const time = screen.getByRole("link", { name: "Line 12 in the replay" });
  expect([time.getAttribute("href"), time.dataset.shown]).toEqual(["/executions/1/replay#t=1.5", timeOfDay(line.at)]);
  fireEvent.click(number);
  expect(onNumber.mock.calls[0]![1]).toBe(12);
});

test("a truncated line says so", () => {
  const { container } = render(<LogRow line={{ ...line, truncated: true }} style={{}} wanted="" linked timed={false} replay={undefined} stop onNumber={() => {}} />);
  expect(container.textContent).toContain("truncated; download the output for the rest");
});

test("the number of matches is described", () => {
  const found = (numbers: number[], done = true, many = false) => ({ numbers, done, many, error: undefined });
  expect(words(found([]), -1)).toBe("no matches");
  expect(words(found([], false), -1)).toBe("searching …");
  expect(words(found([1, 2], false), -1)).toBe("2 so far …");
  expect(words(found([1]), -1)).toBe("1 line");
  expect(words(found([1, 5, 9]), 1)).toBe("2 of 3 lines");
  expect(words(found([1, 5], true, true), 0)).toBe("1 of 2+ lines");
});

/** A clipboard of the browser. */
function clipboard() {
  const write = vi.fn((items: { promised: Record<string, Promise<Blob>> }[]) => items[0]!.promised["text/plain"]!.then((blob) => blob.text()));
  vi.stubGlobal("navigator", { ...window.navigator, clipboard: { write } });
  vi.stubGlobal("ClipboardItem", class { constructor(readonly promised: Record<string, Promise<Blob>>) {} });
  return write;
}

const itself = { id: "1", began: null };

/** Shows some lines in a box of fixed size. */
function shown(parts: Partial<LogViewProps["log"]> = {}, own: LogViewProps["own"] | null = itself) {
  vi.spyOn(HTMLElement.prototype, "clientHeight", "get").mockReturnValue(240);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(800);
  HTMLElement.prototype.scrollTo = () => {};
  const rows = new Rows();
  const lines = [1, 2, 3].map((number) => ({ ...line, number, stream: "STDOUT" as const, text: `line ${number}` }));
  rows.put({ before: 0, lines, total: 3, counted: true, more: false, next: null, cursor: "c" });
  const log = { stream: undefined, rows, version: 1, ready: true, started: true, end: undefined, error: undefined, show: () => {}, find: (number: number) => Promise.resolve(number - 1), read: () => Promise.resolve(""), ...parts };
  return render(<LogView log={log} wanted="" found={{ numbers: [], done: true, many: false, error: undefined }} onWanted={() => {}} onStream={() => {}} own={own ?? undefined} label="Output" nothing="nothing" />);
}
const numberOf = (n: number) => screen.getByRole("link", { name: `Line ${n}` });

test("one line is the tab stop, and arrow keys move to the others", async () => {
  const { container } = shown();
  fireEvent.click(screen.getByRole("button", { name: "Timestamps" }));
  await screen.findByRole("link", { name: "Line 1" });
  const stops = () => [...container.querySelectorAll<HTMLElement>(".output-scroll a")].filter((link) => link.tabIndex === 0).map((link) => link.getAttribute("aria-label"));
  expect(stops()).toEqual(["Line 1"]);
  act(() => numberOf(1).focus());
  fireEvent.keyDown(numberOf(1), { key: "ArrowDown" });
  expect([document.activeElement, stops()]).toEqual([numberOf(2), ["Line 2"]]);
  fireEvent.keyDown(numberOf(2), { key: "ArrowRight" });
  expect(document.activeElement!.getAttribute("aria-label")).toBe("Line 2 in the replay");
  fireEvent.keyDown(document.activeElement!, { key: "ArrowUp" });
  fireEvent.keyDown(numberOf(1), { key: "ArrowUp" }); // there is none
  expect([document.activeElement, stops()]).toEqual([numberOf(1), ["Line 1"]]);
});

test("another click or Escape removes a mark, also from the address", async () => {
  shown();
  const number = await screen.findByRole("link", { name: "Line 2" });
  const says = () => [screen.getByRole("button", { name: /^Copy/ }).textContent, window.location.hash];
  fireEvent.click(number);
  expect(says()).toEqual(["Copy line 2", "#L2"]);
  fireEvent.click(numberOf(3), { shiftKey: true });
  expect(says()).toEqual(["Copy lines 2–3", "#L2-L3"]);
  fireEvent.keyDown(number, { key: "Escape" });
  expect(says()).toEqual(["Copy all", ""]);
  fireEvent.click(number);
  fireEvent.click(number);
  expect(says()).toEqual(["Copy all", ""]);
});

test("on other pages marked lines don't change the address", async () => {
  window.history.replaceState(null, "", "#grant=x");
  const { container } = shown({}, null);
  fireEvent.click(screen.getByRole("button", { name: "Timestamps" }));
  fireEvent.click(await screen.findByRole("button", { name: "Line 2" }));
  fireEvent.click(screen.getByRole("button", { name: "Line 3" }), { shiftKey: true });
  expect(screen.getByRole("button", { name: /^Copy/ }).textContent).toBe("Copy lines 2–3");
  expect([window.location.hash, container.querySelectorAll("a").length, container.querySelectorAll(".line-time").length]).toEqual(["#grant=x", 0, 3]);
  window.history.replaceState(null, "", "#");
});

test("a link to a line waits for the server, and shows a refusal", async () => {
  window.history.replaceState(null, "", "#L3");
  await new Promise((resolve) => window.addEventListener("hashchange", resolve, { once: true })); // no browser has this one
  vi.useFakeTimers();
  const find = vi.fn<LogViewProps["log"]["find"]>().mockRejectedValueOnce(new ServerError("no answer", "", "", true)).mockRejectedValueOnce(new ServerError("not yours"));
  shown({ find });
  await act(() => vi.advanceTimersByTimeAsync(0));
  expect([find.mock.calls.length, screen.queryByText("not yours")]).toEqual([1, null]);
  await act(() => vi.advanceTimersByTimeAsync(2_000));
  expect([find.mock.calls.length, screen.getByText("not yours").getAttribute("role")]).toEqual([2, "status"]);
  window.history.replaceState(null, "", "#");
});

test("the message 'Copied' disappears and is announced again", async () => {
  vi.useFakeTimers();
  const write = clipboard();
  const read = vi.fn(() => Promise.resolve("text"));
  shown({ read });
  const all = screen.getByRole("button", { name: "Copy all" });
  fireEvent.click(all);
  expect(write).toHaveBeenCalledTimes(1); // before the text is there
  await act(() => vi.advanceTimersByTimeAsync(1));
  screen.getByText("Copied");
  fireEvent.click(all);
  expect(screen.queryByText("Copied")).toBeNull();
  await act(() => vi.advanceTimersByTimeAsync(1));
  screen.getByText("Copied");
  await act(() => vi.advanceTimersByTimeAsync(10_000));
  expect(screen.queryByText("Copied")).toBeNull();
  read.mockRejectedValueOnce(new ServerError("too many"));
  fireEvent.click(all);
  await act(() => vi.advanceTimersByTimeAsync(1));
  screen.getByText("too many");
});

test("wrap and timestamps are remembered, and marked lines are copied", async () => {
  const rows = new Rows();
  rows.put({ before: 0, lines: [line], total: 1, counted: true, more: false, next: null, cursor: "c" });
  const read = vi.fn(() => Promise.resolve("oh no"));
  const write = clipboard();
  window.history.replaceState(null, "", "#L12-L14");
  const log = { stream: undefined, rows, version: 1, ready: true, started: true, end: undefined, error: undefined, show: () => {}, find: (number: number) => Promise.resolve(number - 1), read };
  const view = () => <LogView log={log} wanted="" found={{ numbers: [], done: true, many: false, error: undefined }} onWanted={() => {}} onStream={() => {}} own={itself} label="Output" nothing="nothing" />;
  const { unmount } = render(view());
  fireEvent.click(screen.getByRole("button", { name: "Timestamps" }));
  fireEvent.click(screen.getByRole("button", { name: "Wrap" }));
  fireEvent.click(screen.getByRole("button", { name: "Copy lines 12–14" }));
  await waitFor(() => expect(screen.getByText("Copied")).toBeTruthy());
  expect([read.mock.calls[0], await write.mock.results[0]!.value]).toEqual([[{ from: 12, to: 14 }], "oh no"]);
  unmount();
  render(view());
  expect(["Timestamps", "Wrap"].map((name) => screen.getByRole("button", { name }).getAttribute("aria-pressed"))).toEqual(["true", "false"]);
  window.history.replaceState(null, "", "#");
  vi.unstubAllGlobals();
});
