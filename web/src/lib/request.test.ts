import { parse } from "@0no-co/graphql.web";
import type { TadaDocumentNode } from "gql.tada";
import { afterEach, expect, test, vi } from "vitest";
import { request, requestBoth, ServerError } from "./request";
import { session } from "./session";

const document = parse("query Q { version }") as unknown as TadaDocumentNode<{ version: string }, object>;

function answers(status: number, body: unknown) {
  const fetch = vi.fn((_address: string, _init: RequestInit) => Promise.resolve(new Response(typeof body === "string" ? body : JSON.stringify(body), { status })));
  vi.stubGlobal("fetch", fetch);
  return fetch;
}

afterEach(() => {
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

test("the token is sent, and data is returned", async () => {
  session.set("sesame", false);
  const fetch = answers(200, { data: { version: "1" } });
  expect(await request(document, {})).toEqual({ version: "1" });
  expect(fetch.mock.calls[0]![1].headers).toMatchObject({ Authorization: "Bearer sesame" });
});

test("an error has its code and field", async () => {
  answers(200, { errors: [{ message: "must be less", extensions: { code: "INVALID_INPUT", field: "input.poolSize", retryable: false } }] });
  await expect(request(document, {})).rejects.toMatchObject({ message: "must be less", code: "INVALID_INPUT", field: "input.poolSize", retryable: false });
});

test("an error with data is thrown, except by requestBoth", async () => {
  const errors = [{ message: "some are missing", extensions: { code: "CLUSTER_UNAVAILABLE" } }];
  answers(200, { data: { version: "1" }, errors });
  await expect(request(document, {})).rejects.toMatchObject({ code: "CLUSTER_UNAVAILABLE" });
  answers(200, { data: { version: "1" }, errors });
  expect(await requestBoth(document, {})).toMatchObject({ data: { version: "1" }, error: { code: "CLUSTER_UNAVAILABLE" } });
  answers(200, { data: null, errors });
  await expect(requestBoth(document, {})).rejects.toMatchObject({ message: "some are missing" });
});

test.each([
  ["a status", 401, { errors: [{ message: "no", extensions: { code: "UNAUTHENTICATED" } }] }],
  ["a code", 200, { errors: [{ message: "no", extensions: { code: "UNAUTHENTICATED" } }] }],
])("%s asks for a token", async (_, status, body) => {
  session.set("old", false);
  answers(status, body);
  await expect(request(document, {})).rejects.toBeInstanceOf(ServerError);
  expect(session.tokenRequired()).toBe(true);
});

test("an unreachable server is a retryable error", async () => {
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("failed")));
  await expect(request(document, {})).rejects.toMatchObject({ code: "UNREACHABLE", retryable: true });
});

test("a response that isn't JSON is an error", async () => {
  answers(502, "<html>bad gateway</html>");
  await expect(request(document, {})).rejects.toMatchObject({ message: expect.stringContaining("502"), retryable: true });
});
