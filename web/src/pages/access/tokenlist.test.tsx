import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { standing, TokenList, type Token } from "./tokenlist";

afterEach(cleanup);

const now = Date.parse("2026-11-21T12:00:00Z");
const token = (change: Partial<Token>): Token => ({
  id: "t1",
  kind: "TOKEN",
  name: "codeocean",
  tenant: null,
  role: "CLIENT",
  createdAt: "2026-11-20T12:00:00Z",
  createdBy: "",
  expiresAt: null,
  revokedAt: null,
  lastUsedAt: null,
  ...change,
});

test.each([
  [{}, false, "Valid"],
  [{ expiresAt: "2026-11-22T12:00:00Z" }, false, "Expires in 1 d"],
  [{ expiresAt: "2026-11-21T12:00:00Z" }, true, "Expired"],
  [{ revokedAt: "2026-11-21T11:00:00Z", expiresAt: "2026-11-20T12:00:00Z" }, true, "Revoked"],
])("%j", (change, ended, text) => {
  expect(standing(token(change), now)).toMatchObject({ ended, text });
});

test("valid tokens come first; ended ones offer to revoke the tokens created with them", () => {
  const revoke = vi.fn();
  const tokens = [token({ id: "a", name: "old" }), token({ id: "b", name: "gone", createdAt: "2026-11-21T00:00:00Z", revokedAt: "2026-11-21T01:00:00Z" }), token({ id: "c", name: "new", createdAt: "2026-11-21T02:00:00Z" })];
  const { container } = render(<TokenList tokens={tokens} allTenants={false} onRevoke={revoke} />);
  expect([...container.querySelectorAll("tbody tr td:first-child")].map((cell) => cell.textContent)).toEqual(["new", "old", "gone"]);
  expect(screen.getAllByRole("button").map((button) => button.getAttribute("aria-label"))).toEqual(["Revoke new", "Revoke old", "Revoke the tokens created with gone"]);
  fireEvent.click(screen.getByRole("button", { name: "Revoke old" }));
  fireEvent.click(screen.getByRole("button", { name: "Revoke the tokens created with gone" }));
  expect(revoke.mock.calls).toEqual([[tokens[0]], [tokens[1]]]);
});

test("the creating token is shown: by name if it is listed", () => {
  const tokens = [token({ id: "a", name: "root" }), token({ id: "b", name: "made", createdBy: "a" }), token({ id: "c", name: "lost", createdBy: "019b2222-0000-7000-8000-00000000abcd" })];
  const { container } = render(<TokenList tokens={tokens} allTenants={false} onRevoke={() => {}} />);
  const at = [...container.querySelectorAll("th")].findIndex(({ textContent }) => textContent === "Created by");
  expect(Object.fromEntries([...container.querySelectorAll("tbody tr")].map(({ children }) => [children[0]!.textContent, children[at]!.textContent]))).toEqual({ root: "–", made: "root", lost: "…0000abcd" });
});

test("a name is shown as text, and the tenant for callers with several", () => {
  const tokens = [token({ name: "<script>alert(1)</script>\u202e", tenant: "a" })];
  const { container, rerender } = render(<TokenList tokens={tokens} allTenants onRevoke={() => {}} />);
  expect(container.querySelector("script")).toBeNull();
  expect(container.textContent).toContain("<script>alert(1)</script>U+202E");
  expect(screen.getByRole("columnheader", { name: "Tenant" })).toBeTruthy();
  rerender(<TokenList tokens={tokens} allTenants={false} onRevoke={() => {}} />);
  expect(screen.queryByRole("columnheader", { name: "Tenant" })).toBeNull();
});
