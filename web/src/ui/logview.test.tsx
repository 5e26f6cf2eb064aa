import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { clock, LogRow } from "./logline";
import { LogView, words } from "./logview";
import { Rows, type LogLine } from "../lib/loglines";

afterEach(() => {
  cleanup();
  localStorage.clear();
});

const line: LogLine = { number: 12, stream: "STDERR", text: "oh no", truncated: false, open: false, at: "2026-11-27T10:00:01.500Z", lostBytes: 0, lostCause: null };

test("a line's number, time and stream are no text of it, but have names", () => {
  const onNumber = vi.fn();
  const { container } = render(<LogRow line={line} wanted="" moment="/executions/1/replay#t=1.5" onNumber={onNumber} />);
  expect(container.textContent).toBe("oh no");
  const number = screen.getByRole("link", { name: "Line 12, standard error" });
  expect([number.getAttribute("href"), number.dataset.shown]).toEqual(["#L12", "12"]);
  expect(container.querySelector<HTMLElement>(".line-stream")!.dataset.shown).toBe("err");
  const time = screen.getByRole("link", { name: "Line 12 in the replay" });
  expect([time.getAttribute("href"), time.dataset.shown]).toEqual(["/executions/1/replay#t=1.5", clock(line.at)]);
  fireEvent.click(number);
  expect(onNumber.mock.calls[0]![1]).toBe(12);
});

test("a line that was cut says so", () => {
  const { container } = render(<LogRow line={{ ...line, truncated: true }} wanted="" moment={undefined} onNumber={() => {}} />);
  expect(container.textContent).toContain("download it to read the rest");
});

test("what was found is put into words", () => {
  const found = (numbers: number[], done = true, many = false) => ({ numbers, done, many, error: undefined });
  expect(words(found([]), -1)).toBe("not found");
  expect(words(found([], false), -1)).toBe("searching …");
  expect(words(found([1, 2], false), -1)).toBe("2 so far …");
  expect(words(found([1]), -1)).toBe("1 line");
  expect(words(found([1, 5, 9]), 1)).toBe("2 of 3 lines");
  expect(words(found([1, 5], true, true), 0)).toBe("1 of 2+ lines");
});

test("wrap and times are remembered, and what is copied is what is marked", async () => {
  const rows = new Rows();
  rows.put({ before: 0, lines: [line], total: 1, counted: true, more: false, next: null, cursor: "c" });
  const read = vi.fn(() => Promise.resolve("oh no"));
  const writeText = vi.fn(() => Promise.resolve());
  vi.stubGlobal("navigator", { ...window.navigator, clipboard: { writeText } });
  window.history.replaceState(null, "", "#L12-L14");
  const log = { id: "1", stream: undefined, rows, version: 1, ready: true, started: true, end: undefined, error: undefined, show: () => {}, find: (number: number) => Promise.resolve(number - 1), read };
  const view = () => <LogView log={log} wanted="" found={{ numbers: [], done: true, many: false, error: undefined }} onWanted={() => {}} onStream={() => {}} began={null} label="Output" nothing="nothing" />;
  const { unmount } = render(view());
  fireEvent.click(screen.getByRole("button", { name: "Times" }));
  fireEvent.click(screen.getByRole("button", { name: "Wrap" }));
  fireEvent.click(screen.getByRole("button", { name: "Copy lines 12–14" }));
  await waitFor(() => expect(screen.getByText("Copied")).toBeTruthy());
  expect([read.mock.calls[0], writeText.mock.calls[0]]).toEqual([[{ from: 12, to: 14 }], ["oh no"]]);
  unmount();
  render(view());
  expect(["Times", "Wrap"].map((name) => screen.getByRole("button", { name }).getAttribute("aria-pressed"))).toEqual(["true", "false"]);
  window.history.replaceState(null, "", "#");
  vi.unstubAllGlobals();
});
