import { print, type DocumentNode } from "@0no-co/graphql.web";
import type { TadaDocumentNode } from "gql.tada";
import { credentials, session } from "./session";

/** ServerError is an error of the API, or of the connection to it (code UNREACHABLE). */
export class ServerError extends Error {
  readonly code: string;
  /** The field of the input that is wrong, for example `input.poolSize`; "" where none is. */
  readonly field: string;
  readonly retryable: boolean;

  constructor(message: string, code = "", field = "", retryable = false) {
    super(message);
    this.name = "ServerError";
    this.code = code;
    this.field = field;
    this.retryable = retryable;
  }
}

/** RawError is an error of a GraphQL response. */
export interface RawError {
  readonly message: string;
  readonly extensions?: { readonly code?: unknown; readonly field?: unknown; readonly retryable?: unknown } | null;
}

/**
 * serverError returns the first error of a response. It prompts for a token if the server rejected
 * the current one.
 */
export function serverError(errors: readonly RawError[]): ServerError {
  const first = errors[0];
  const { code, field, retryable } = first?.extensions ?? {};
  if (code === "UNAUTHENTICATED") session.requireToken();
  return new ServerError(
    first?.message ?? "the server reported an error without a message",
    typeof code === "string" ? code : "",
    typeof field === "string" ? field : "",
    retryable === true,
  );
}

/** unreachable returns the error for a request that got no response at all. It is retryable. */
export function unreachable(): ServerError {
  return new ServerError("The server doesn't respond. Check that it is running.", "UNREACHABLE", "", true);
}

/** texts caches the documents' texts. */
const texts = new WeakMap<object, string>();

/** textOf returns a document as text, from a cache. */
export function textOf(document: object): string {
  let text = texts.get(document);
  if (text === undefined) {
    text = print(document as DocumentNode);
    texts.set(document, text);
  }
  return text;
}

/** Answer is a GraphQL response. */
interface Answer<T> {
  data?: T | null;
  errors?: readonly RawError[];
}

/**
 * request sends a query or a mutation and returns its data. It throws a ServerError, or the fetch error after an
 * abort.
 */
export async function request<Result, Variables>(
  document: TadaDocumentNode<Result, Variables>,
  variables: Variables,
  signal?: AbortSignal,
): Promise<Result> {
  return readResponse<Result>(() => send(document, variables, signal), signal);
}

/**
 * requestBoth is request for queries that can return data together with an error. It throws a ServerError if there
 * is no data.
 */
export async function requestBoth<Result, Variables>(
  document: TadaDocumentNode<Result, Variables>,
  variables: Variables,
  signal?: AbortSignal,
): Promise<{ data: Result; error: ServerError | undefined }> {
  return both<Result>(() => send(document, variables, signal), signal);
}

/** send posts a document with the grant or the token. */
function send<Result, Variables>(document: TadaDocumentNode<Result, Variables>, variables: Variables, signal?: AbortSignal): Promise<Response> {
  const headers = { "Content-Type": "application/json", Accept: "application/graphql-response+json, application/json", ...credentials() };
  const body = JSON.stringify({ query: textOf(document), variables });
  const cookies = session.hasGrant() ? "omit" : "same-origin"; // a page that acts with a grant shows nothing else
  return fetch("/graphql", { method: "POST", headers, body, credentials: cookies, signal: signal ?? null });
}

/** readResponse reads the response of any request to the API. It throws a ServerError. */
export async function readResponse<Result>(send: () => Promise<Response>, signal?: AbortSignal): Promise<Result> {
  const { data, error } = await both<Result>(send, signal);
  if (error) throw error;
  return data;
}

/**
 * both reads a response that can have data together with an error. It throws if there is no data.
 */
async function both<Result>(send: () => Promise<Response>, signal?: AbortSignal): Promise<{ data: Result; error: ServerError | undefined }> {
  let response: Response;
  let body: Answer<Result>;
  try {
    response = await send();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw unreachable();
  }
  if (response.status === 401) session.requireToken();
  try {
    body = (await response.json()) as Answer<Result>;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError(`The server responded with ${response.status} ${response.statusText}`, "", "", response.status >= 500);
  }
  const error = body.errors && body.errors.length > 0 ? serverError(body.errors) : undefined;
  if (body.data == null) throw error ?? new ServerError(`The server responded with ${response.status} and no data`);
  return { data: body.data, error };
}
