import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Holder } from "./holder";

afterEach(cleanup);

const claim = { claimedAt: "2026-11-21T00:00:00Z", expiresAt: null, holder: null as string | null, labels: [{ name: "user", value: "ada" }] };

test("a holder links to its filter with the other filters kept, and invisible characters are marked", () => {
  const { container } = render(<Holder runner={{ message: null, claim: { ...claim, holder: "ada & eve\u200b" } }} params={new URLSearchParams("state=CLAIMED")} />);
  const [holder, label] = screen.getAllByRole("link");
  expect(holder?.getAttribute("href")).toBe("/runners?state=CLAIMED&held-by=ada+%26+eve%E2%80%8B");
  expect(holder?.getAttribute("title")).toMatch(/^show runners whose holder or labels contain ada & eve/);
  expect(container.querySelector(".unseen")).not.toBeNull();
  expect(label?.textContent).toBe("user=ada");
});

test("a claim without a holder shows its labels only", () => {
  render(<Holder runner={{ message: null, claim }} params={new URLSearchParams()} />);
  expect(screen.getAllByRole("link").map((link) => link.textContent)).toEqual(["user=ada"]);
});

test("an unclaimed runner shows its message", () => {
  render(<Holder runner={{ message: "no room", claim: null }} params={new URLSearchParams()} />);
  expect(screen.getByText("no room")).toBeTruthy();
});
