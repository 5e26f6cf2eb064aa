import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { RevokeToken } from "./revoketoken";
import type { Token } from "./tokenlist";

afterEach(cleanup);

const token = (id: string): Token => ({ id, kind: "TOKEN", name: id, tenant: null, role: "ADMIN", createdAt: "2026-11-20T00:00:00Z", createdBy: "", expiresAt: null, revokedAt: null, lastUsedAt: null });

test("a token is revoked alone or with the tokens created with it", () => {
  const revoke = vi.fn();
  const dialog = (of: Token) => <RevokeToken token={of} busy={false} error={undefined} onRevoke={revoke} onClose={() => {}} />;
  const { rerender } = render(dialog(token("a")));
  const click = () => fireEvent.click(screen.getByText("Revoke it"));
  click();
  fireEvent.click(screen.getByLabelText(/The token leaked/));
  click();
  rerender(dialog(token("b")));
  click();
  expect(revoke.mock.calls).toEqual([["a", false], ["a", true], ["b", false]]);
});

test("for an ended token the tokens created with it are revoked", () => {
  const revoke = vi.fn();
  render(<RevokeToken token={{ ...token("a"), revokedAt: "2026-11-20T01:00:00Z" }} busy={false} error={undefined} onRevoke={revoke} onClose={() => {}} />);
  expect(screen.queryByLabelText(/The token leaked/)).toBeNull();
  fireEvent.click(screen.getByText("Revoke them"));
  expect(revoke.mock.calls).toEqual([["a", true]]);
});
