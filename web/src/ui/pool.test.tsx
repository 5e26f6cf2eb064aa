import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { PoolBar } from "./pool";

test("a bar says what it shows", () => {
  render(<PoolBar pool={{ size: 4, idle: 2, claimed: 1, starting: 1, stopping: 0, waiting: 0 }} />);
  const bar = screen.getByRole("img", { name: "2 idle, 1 claimed, 1 starting, 4 wanted idle" });
  expect([...bar.querySelectorAll("span")].map((part) => part.style.width)).toEqual(["50%", "25%", "25%", "0%"]);
});
