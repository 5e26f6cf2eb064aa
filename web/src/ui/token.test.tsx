import { act, cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Caller } from "../lib/access";
import { CallerProvider, useCaller } from "../lib/caller";
import { session } from "../lib/session";
import { ForgetToken, SignIn, TokenDialog } from "./token";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.unstubAllGlobals();
  session.forget();
  session.dismiss();
  window.history.replaceState(null, "", "/");
});

/** Resolves after the response of an address was read and rendered. */
let shown: (address: string) => Promise<void>;

/** A server for this kind of caller; undefined means that it requires a token. */
function serves(kind: Caller["kind"] | undefined, { configured = true, logout = new Response(null, { status: 204 }) } = {}) {
  const asked: string[] = [];
  const read: string[] = [];
  shown = async (address) => {
    await waitFor(() => expect(read).toContain(address));
    await act(async () => {});
  };
  vi.stubGlobal("fetch", async (address: string, init?: RequestInit) => {
    asked.push(`${init?.method ?? "GET"} ${address}`);
    if (address === "/auth/provider") {
      const json = async () => {
        read.push(address);
        return { configured };
      };
      return Object.assign(new Response(), { json });
    }
    if (address === "/auth/logout") return logout;
    if (kind === undefined) return Response.json({ errors: [{ message: "it needs a token", extensions: { code: "UNAUTHENTICATED" } }] }, { status: 401 });
    return Response.json({ data: { version: "1", me: { kind, name: "Ada", tenant: null, role: "ADMIN" }, tenants: [] } });
  });
  return asked;
}

/** Renders the known caller. */
function Known() {
  const { caller, error } = useCaller();
  return <output>{caller?.kind ?? error?.code}</output>;
}
const show = () => render(<CallerProvider><Known /><SignIn /></CallerProvider>);

test.each(["ANONYMOUS" as const, undefined])("a caller that is %s signs in, and comes back to the same page", async (kind) => {
  window.history.replaceState(null, "", "/runners?environment=a%26b");
  serves(kind);
  show();
  const link = await waitFor(() => screen.getByRole("link", { name: "Sign in" }));
  expect(link.getAttribute("href")).toBe(`/auth/login?return=${encodeURIComponent("/runners?environment=a%26b")}`);
});

test("a server without a provider offers no sign-in", async () => {
  serves("ANONYMOUS", { configured: false });
  show();
  await shown("/auth/provider");
  expect(screen.queryByRole("link")).toBeNull();
});

test("a caller with a valid token isn't offered a sign-in", async () => {
  session.set("a-token", false);
  const asked = serves("TOKEN");
  show();
  await waitFor(() => screen.getByText("TOKEN"));
  expect(asked).toEqual(["POST /graphql"]);
  expect(screen.queryByRole("link")).toBeNull();
});

test("signing in forgets a rejected token, which would take precedence over the session", async () => {
  session.set("a-refused-token", true);
  serves(undefined);
  show();
  const link = await waitFor(() => screen.getByRole("link", { name: "Sign in" }));
  link.addEventListener("click", (event) => event.preventDefault());
  fireEvent.click(link);
  expect(session.token()).toBe("");
});

test.each([
  ["UNREACHABLE", () => Promise.reject(new TypeError("failed"))],
  ["STARTING", () => Promise.resolve(Response.json({ errors: [{ message: "wait", extensions: { code: "STARTING" } }] }, { status: 503 }))],
])("an error that says nothing of the token offers no sign-in, which would forget it: %s", async (code, answer) => {
  session.set("a-token", true);
  const asked: string[] = [];
  vi.stubGlobal("fetch", (address: string) => {
    asked.push(address);
    return answer();
  });
  show();
  await waitFor(() => screen.getByText(code));
  expect(asked).not.toContain("/auth/provider");
  expect(screen.queryByRole("link")).toBeNull();
});

test("the dialog for another token keeps a valid token and offers no sign-in", async () => {
  session.set("a-token", true);
  serves("TOKEN");
  render(<TokenDialog />);
  act(() => session.change());
  await waitFor(() => screen.getByText(/To sign in instead/));
  expect(screen.queryByText("Sign in")).toBeNull();
  act(() => session.dismiss());
  act(() => session.requireToken()); // the server now rejects it
  await waitFor(() => screen.getByText("Sign in"));
});

test("the query for a provider is repeated after a failure", async () => {
  vi.useFakeTimers();
  const asked = serves(undefined);
  const answering = fetch;
  let failing = true;
  vi.stubGlobal("fetch", (address: string, init?: RequestInit) => (failing && address === "/auth/provider" ? Promise.resolve(new Response("busy", { status: 503 })) : answering(address, init)));
  render(<TokenDialog />);
  await act(async () => session.requireToken());
  expect(screen.queryByText("Sign in")).toBeNull();
  failing = false;
  await act(() => vi.advanceTimersByTimeAsync(3_000));
  expect(asked).toEqual(["GET /auth/provider"]);
  expect(screen.getByText("Sign in")).toBeTruthy();
});

test("signing in returns to the current page with its filters", async () => {
  serves("ANONYMOUS");
  show();
  const link = await waitFor(() => screen.getByRole("link", { name: "Sign in" }));
  expect(link.getAttribute("href")).toBe("/auth/login?return=%2F");
  act(() => window.history.replaceState(null, "", "/?environment=python"));
  await waitFor(() => expect(link.getAttribute("href")).toBe(`/auth/login?return=${encodeURIComponent("/?environment=python")}`));
});

test("signing out reloads the page", async () => {
  const reload = vi.spyOn(window.location, "reload").mockImplementation(() => {});
  const asked = serves("SESSION");
  localStorage.setItem("rockpool.playground", "a program");
  show();
  fireEvent.click(await waitFor(() => screen.getByRole("button", { name: "Sign out" })));
  await waitFor(() => expect(reload).toHaveBeenCalledTimes(1));
  expect(localStorage.length).toBe(0);
  expect(asked).toEqual(["POST /graphql", "POST /auth/logout"]);
});

test("forgetting the token deletes the drafts, also unsaved ones", () => {
  const reload = vi.spyOn(window.location, "reload").mockImplementation(() => {});
  session.set("a-token", true);
  const late = session.listen(() => localStorage.setItem("rockpool.playground", "late"));
  for (const storage of [sessionStorage, localStorage]) storage.setItem("rockpool.playground", "a program");
  render(<ForgetToken />);
  fireEvent.click(screen.getByRole("button", { name: "Forget the token" }));
  late();
  expect(reload).toHaveBeenCalledTimes(1);
  expect([sessionStorage.length, localStorage.length]).toEqual([0, 0]);
});

test("a token that the browser can't store is reported", () => {
  const reload = vi.spyOn(window.location, "reload").mockImplementation(() => {});
  serves(undefined);
  render(<TokenDialog />);
  act(() => session.requireToken());
  vi.spyOn(session, "set").mockReturnValue(false);
  fireEvent.change(screen.getByLabelText("Token"), { target: { value: "a-token" } });
  fireEvent.submit(screen.getByLabelText("Token").closest("form")!);
  screen.getByText(/its storage is full/);
  expect(reload).not.toHaveBeenCalled();
});

test("a failed sign-out reports that the session continues", async () => {
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
  act(() => session.requireToken());
  await shown("/auth/provider");
  expect(asked).toEqual(["GET /auth/provider"]);
  expect(screen.queryByText("Sign in") !== null).toBe(configured);
});
