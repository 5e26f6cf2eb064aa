import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Output } from "../lib/output";
import { OutputView } from "./output";

afterEach(cleanup);

test("a search without a hit says in how much it searched, and is cleared", () => {
  const output = new Output();
  output.push("STDOUT", "one\ntwo");
  output.flush();
  render(<OutputView output={output} version={1} live={false} label="Output" nothing={null} />);
  const input = screen.getByLabelText("Search the output") as HTMLInputElement;
  fireEvent.change(input, { target: { value: "three" } });
  expect(screen.getByRole("status").textContent).toBe("in none of 2 lines");
  fireEvent.click(screen.getByRole("button", { name: "Clear" }));
  expect(input.value).toBe("");
  fireEvent.change(input, { target: { value: "two" } });
  expect(screen.getByRole("status").textContent).toBe("1 line");
});
