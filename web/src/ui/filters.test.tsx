import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readFilters } from "../lib/filter";
import { LabelFilter, Search, TimeFilter, useFilters } from "./filters";

beforeEach(() => window.history.replaceState(null, "", "/executions?environment=c"));
afterEach(cleanup);

function Filters() {
  const [params, set] = useFilters();
  const read = readFilters(params, []);
  return (
    <>
      <TimeFilter read={read} set={set} />
      <LabelFilter read={read} set={set} />
      <Search label="Text" placeholder="" value={read.text} onChange={(text) => set({ text })} />
    </>
  );
}
const search = () => window.location.search;
const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });

test("a time filter is a range or two times, never both", () => {
  render(<Filters />);
  type("Time", "1d");
  expect(search()).toBe("?environment=c&since=1d");
  type("Time", "between");
  expect(search()).toBe("?environment=c");
  type("From", "0002-02-02T11:00"); // the first digit of a year
  expect([search(), screen.getByLabelText<HTMLInputElement>("From").value]).toEqual(["?environment=c", "0002-02-02T11:00"]);
  type("From", "2026-02-02T11:00");
  expect(search()).toBe(`?environment=c&from=${encodeURIComponent(new Date("2026-02-02T11:00").toISOString())}`);
  type("From", "");
  expect(screen.getByLabelText("to")).toBeTruthy(); // they stay while one is cleared
  type("Time", "");
  expect(search()).toBe("?environment=c");
  expect(screen.queryByLabelText("to")).toBeNull();
});

test("Enter adds a label; an invalid one is kept and marked", () => {
  render(<Filters />);
  const input = screen.getByLabelText<HTMLInputElement>(/^Label/);
  type("Label, as name=value, then Enter", "=x");
  fireEvent.submit(input.form!);
  expect([input.value, input.getAttribute("aria-invalid"), search()]).toEqual(["=x", "true", "?environment=c"]);
  for (const label of [" user=ada ", "user=ada", "course"]) {
    type("Label, as name=value, then Enter", label);
    fireEvent.submit(input.form!);
  }
  expect([input.value, search()]).toEqual(["", "?environment=c&label=user%3Dada&label=course"]);
  fireEvent.click(screen.getByText("Only label user=ada ×"));
  expect(search()).toBe("?environment=c&label=course");
});

test("going back undoes a filter, not a letter", () => {
  render(<Filters />);
  const before = window.history.length;
  for (const text of ["a", "ad", "ada"]) {
    type("Text", text);
    fireEvent.keyDown(screen.getByLabelText("Text"), { key: "Enter" });
  }
  expect(search()).toBe("?environment=c&text=ada");
  expect(window.history.length).toBe(before + 1);
});
