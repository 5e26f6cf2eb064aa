import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Caller } from "../lib/access";
import { CallerProvider } from "../lib/caller";
import { session } from "../lib/session";
import { SignIn, TokenDialog } from "./token";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  session.forget();
  session.without();
  window.history.replaceState(null, "", "/");
});

/** A server that answers to this kind of caller; undefined: it wants a token. */
function serves(kind: Caller["kind"] | undefined, { configured = true, logout = new Response(null, { status: 204 }) } = {}) {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (address: string, init?: RequestInit) => {
    asked.push(`${init?.method ?? "GET"} ${address}`);
    if (address === "/auth/provider") return Response.json({ configured });
    if (address === "/auth/logout") return logout;
    if (kind === undefined) return Response.json({ errors: [{ message: "it needs a token", extensions: { code: "UNAUTHENTICATED" } }] }, { status: 401 });
    return Response.json({ data: { version: "1", me: { kind, name: "Ada", tenant: null, role: "ADMIN" }, tenants: [] } });
  });
  return asked;
}

const show = () => render(<CallerProvider><SignIn /></CallerProvider>);
/** All that was asked has been answered and shown. */
const settled = () => act(() => new Promise((resolve) => setTimeout(resolve)));

test.each(["ANONYMOUS" as const, undefined])("a caller that is %s signs in, and comes back to the same page", async (kind) => {
  window.history.replaceState(null, "", "/runners?environment=a%26b");
  serves(kind);
  show();
  const link = await waitFor(() => screen.getByRole("link", { name: "Sign in" }));
  expect(link.getAttribute("href")).toBe(`/auth/login?return=${encodeURIComponent("/runners?environment=a%26b")}`);
});

test("a server without a provider offers no sign-in", async () => {
  const asked = serves("ANONYMOUS", { configured: false });
  show();
  await waitFor(() => expect(asked).toContain("GET /auth/provider"));
  await settled();
  expect(screen.queryByRole("link")).toBeNull();
});

test("a caller with a token that holds isn't asked to sign in", async () => {
  session.set("a-token", false);
  const asked = serves("TOKEN");
  show();
  await waitFor(() => expect(asked).toHaveLength(1));
  await settled();
  expect(asked).toEqual(["POST /graphql"]);
  expect(screen.queryByRole("link")).toBeNull();
});

test("to sign in forgets a token that the server refuses: it would count before the session", async () => {
  session.set("a-refused-token", true);
  serves(undefined);
  show();
  const link = await waitFor(() => screen.getByRole("link", { name: "Sign in" }));
  link.addEventListener("click", (event) => event.preventDefault());
  fireEvent.click(link);
  expect(session.token()).toBe("");
});

test("a person who signed in signs out, and the page loads anew", async () => {
  const reload = vi.spyOn(window.location, "reload").mockImplementation(() => {});
  const asked = serves("SESSION");
  show();
  fireEvent.click(await waitFor(() => screen.getByRole("button", { name: "Sign out" })));
  await waitFor(() => expect(reload).toHaveBeenCalledTimes(1));
  expect(asked).toEqual(["POST /graphql", "POST /auth/logout"]);
});

test("a sign-out that fails says that the session goes on", async () => {
  const reload = vi.spyOn(window.location, "reload").mockImplementation(() => {});
  serves("SESSION", { logout: new Response("you are still signed in", { status: 503 }) });
  show();
  fireEvent.click(await waitFor(() => screen.getByRole("button", { name: "Sign out" })));
  expect((await waitFor(() => screen.getByRole("alert"))).textContent).toBe("you are still signed in");
  expect(reload).not.toHaveBeenCalled();
});

test.each([true, false])("the dialog that asks for a token offers to sign in, where the server has a provider: %s", async (configured) => {
  const asked = serves(undefined, { configured });
  render(<TokenDialog />);
  expect(asked).toEqual([]);
  act(() => session.want());
  await waitFor(() => expect(asked).toEqual(["GET /auth/provider"]));
  await settled();
  expect(screen.queryByText("Sign in") !== null).toBe(configured);
});
