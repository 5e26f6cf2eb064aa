import { afterEach, expect, test } from "vitest";
import { credentials, session } from "./session";

afterEach(() => session.forget());

test("a token is kept by the tab, and by nothing else", () => {
  session.want();
  session.set("secret", false);
  expect([session.wanted(), session.token(), localStorage.length]).toEqual([false, "secret", 0]);
  expect(credentials()).toEqual({ Authorization: "Bearer secret" });
});

test("only who asks for it is remembered, until it is forgotten or replaced", () => {
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
