import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Meter, PoolBar, PoolCounts } from "./pool";

afterEach(cleanup);

test("the bar's accessible name has its counts", () => {
  render(<PoolBar pool={{ size: 4, idle: 2, claimed: 1, starting: 1, stopping: 0, waiting: 0 }} />);
  const bar = screen.getByRole("img", { name: "2 idle, 1 claimed, 1 starting, pool size 4" });
  expect([...bar.querySelectorAll("span")].map((part) => part.style.width)).toEqual(["50%", "25%", "25%", "0%"]);
});

test("waiting claims link to the queue of their environment", () => {
  const pool = { size: 4, idle: 0, claimed: 1, starting: 1, stopping: 0, waiting: 2 };
  const { rerender } = render(<PoolCounts environment="a b" pool={pool} />);
  expect(screen.getByRole("link", { name: "2 claims waiting" }).getAttribute("href")).toBe("/access/queue?environment=a%20b");
  rerender(<PoolCounts environment="a b" pool={{ ...pool, waiting: 0 }} />);
  expect(screen.queryByRole("link")).toBeNull();
});

test.each([
  [3, 4, "CPU promised: 3 of 4 GHz", "75%", true],
  [10, 4, "CPU promised: 10 of 4 GHz (2.5×)", "100%", false],
  [0, 0, "CPU promised: 0 of 0 GHz", "0%", true],
])("a meter of %d of %d", (used, of, name, width, hidden) => {
  render(<Meter label="CPU promised" used={used} of={of} text={`${used} of ${of} GHz`} />);
  const bar = screen.getByRole("img", { name });
  expect(bar.querySelector("span")!.style.width).toBe(width);
  const mark = bar.querySelector("i")!;
  expect(mark.hidden).toBe(hidden);
  if (!hidden) expect(mark.style.left).toBe("40%");
});
