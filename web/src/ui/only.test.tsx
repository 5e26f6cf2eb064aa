import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { needs } from "../lib/access";
import { ServerError } from "../lib/request";
import { Only } from "./only";
import { Failure } from "./parts";

afterEach(cleanup);

const caller = { kind: "TOKEN" as const, name: "<b>x</b>\u202e", role: "CLIENT" as const, tenant: "a" };

test("a page without access shows the required role and how to get it", () => {
  const { container } = render(<Only title="Tokens" need={needs.tokens} caller={caller} met={false}>secret</Only>);
  expect(container.textContent).not.toContain("secret");
  expect(screen.getByText("This page needs the role ADMIN")).toBeTruthy();
  expect(container.textContent).toContain("You use the token <b>x</b>U+202E: CLIENT of tenant a.");
  expect(screen.getByRole("button", { name: "Use another token" })).toBeTruthy();
});

test.each([
  ["who meets it", caller, true],
  ["a caller that isn't known yet", undefined, false],
])("%s gets the page", (_, who, met) => {
  const { container } = render(<Only title="Tokens" need={needs.tokens} caller={who} met={met}>secret</Only>);
  expect(container.textContent).toBe("secret");
});

test("FORBIDDEN shows what to do and offers no retry", () => {
  const { container } = render(<Failure error={new ServerError("tokens needs the role ADMIN; this token has CLIENT", "FORBIDDEN")} retry={() => {}} />);
  expect(container.textContent).toContain("this token has CLIENT. Ask an administrator");
  expect(screen.queryByText("Try again")).toBeNull();
  expect(screen.getByRole("button", { name: "Use another token" })).toBeTruthy();
});
