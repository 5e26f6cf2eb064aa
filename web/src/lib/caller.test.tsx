import { act, cleanup, renderHook, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { CallerProvider, useCaller } from "./caller";
import { session } from "./session";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  vi.useRealTimers();
  session.dismiss();
});

const hello = (tenants: string[], me: object) => ({ data: { version: "1", me: { kind: "TOKEN", name: "n", ...me }, tenants: tenants.map((id) => ({ id })) } });

function asked(...answers: object[]) {
  const fetch = vi.fn(() => {
    const next = answers.length > 1 ? answers.shift() : answers[0];
    return next instanceof Error ? Promise.reject(next) : Promise.resolve(Response.json(next));
  });
  vi.stubGlobal("fetch", fetch);
  return fetch;
}
const render = () => renderHook(useCaller, { wrapper: CallerProvider }).result;

test("until the caller is known, no feature is offered", async () => {
  const fetch = asked(hello(["a", "default"], { role: "ADMIN", tenant: null }));
  const result = render();
  expect([result.current.caller, result.current.may("use"), result.current.showTenants]).toEqual([undefined, false, false]);
  await waitFor(() => expect(result.current.caller?.role).toBe("ADMIN"));
  expect([result.current.may("tenants"), result.current.showTenants, result.current.version]).toEqual([true, true, "1"]);
  expect(fetch).toHaveBeenCalledTimes(1);
});

test.each([
  [["default"], null, false],
  [["a", "default"], null, true],
  [["a"], "a", false],
])("tenants %j for a caller of %s are shown: %s", async (tenants, tenant, shown) => {
  asked(hello(tenants, { role: "OBSERVER", tenant }));
  const result = render();
  await waitFor(() => expect(result.current.caller).toBeDefined());
  expect(result.current.showTenants).toBe(shown);
});

test("the query for the caller is repeated after a failure, and on reload", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const fetch = asked(new TypeError("failed"), hello(["default"], { role: "ADMIN", tenant: null }), hello(["a", "default"], { role: "ADMIN", tenant: null }));
  const result = render();
  await waitFor(() => expect(result.current.error?.code).toBe("UNREACHABLE"));
  expect(fetch).toHaveBeenCalledTimes(1);
  await act(() => vi.advanceTimersByTimeAsync(3_000));
  await waitFor(() => expect(result.current.caller).toBeDefined());
  expect(result.current.error).toBeUndefined();
  act(() => result.current.reload());
  await waitFor(() => expect(result.current.showTenants).toBe(true));
});
