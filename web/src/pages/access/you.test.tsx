import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { CallerDetails } from "./you";

afterEach(cleanup);

test("the page shows the caller and its role", () => {
  const { container } = render(<CallerDetails caller={{ kind: "TOKEN", name: "<i>course</i>", tenant: "a", role: "CLIENT" }} />);
  expect(container.textContent).toContain("<i>course</i>");
  expect([...container.querySelectorAll("li")].map((item) => [item.className, item.textContent!.split(":")[0]])).toEqual([
    ["", "OBSERVER"],
    ["", "CLIENT (you)"],
    ["soft", "OPERATOR"],
    ["soft", "ADMIN"],
  ]);
  expect(container.querySelector(".notice")).toBeNull();
});

test("a server without tokens shows a warning", () => {
  const { container } = render(<CallerDetails caller={{ kind: "ANONYMOUS", name: "anonymous", tenant: null, role: "ADMIN" }} />);
  expect(container.querySelector(".notice")!.textContent).toContain("everyone who can reach it can do everything");
});
