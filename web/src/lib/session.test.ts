import { afterEach, expect, test, vi } from "vitest";
import { credentials, session } from "./session";

afterEach(() => session.forget());

test("a token is stored only for the tab", () => {
  session.requireToken();
  session.set("secret", false);
  expect([session.tokenRequired(), session.token(), localStorage.length]).toEqual([false, "secret", 0]);
  expect(credentials()).toEqual({ Authorization: "Bearer secret" });
});

test("a token is remembered only on request, until it is forgotten or replaced", () => {
  session.set("secret", true);
  sessionStorage.clear(); // as in another tab
  expect(session.token()).toBe("secret");
  session.set("other", false);
  expect([session.token(), localStorage.length]).toEqual(["other", 0]);
  session.set("secret", true);
  session.forget();
  expect([session.token(), sessionStorage.length, localStorage.length]).toEqual(["", 0, 0]);
  expect(credentials()).toEqual({});
});

test("a grant replaces the token in requests, isn't stored, and causes no prompt", async () => {
  vi.resetModules();
  const other = await import("./session"); // as in the document of a shared page
  other.session.set("secret", true);
  other.session.actWithGrant("rpg_grant");
  expect(other.credentials()).toEqual({ Authorization: "Bearer rpg_grant" });
  other.session.requireToken();
  expect([other.session.tokenRequired(), other.session.hasGrant(), other.session.token()]).toEqual([false, true, "secret"]);
  expect(JSON.stringify([Object.values(localStorage), Object.values(sessionStorage)])).not.toContain("rpg_");
});

test("the user can request another token", () => {
  session.set("secret", false);
  session.change();
  expect([session.tokenRequired(), session.changeRequested()]).toEqual([true, true]);
  session.dismiss();
  session.requireToken();
  expect([session.tokenRequired(), session.changeRequested()]).toEqual([true, false]);
  session.dismiss();
});

test("a token that couldn't be stored is still required", () => {
  session.requireToken();
  vi.stubGlobal("localStorage", { getItem: () => null, removeItem: () => {}, setItem: () => expect.fail("full") });
  expect(session.set("secret", true)).toBe(false);
  expect(session.tokenRequired()).toBe(true);
  vi.unstubAllGlobals();
  session.dismiss();
});
