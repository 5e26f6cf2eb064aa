// Sends operations by POST, and follows executions over WebSockets.
import { setTimeout as pause } from "node:timers/promises";
import type { GraphQLFormattedError } from "graphql";
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const url = `${process.env.ROCKPOOL_SERVER ?? "http://127.0.0.1:8080"}/graphql`;

/** An error of the server. error.extensions has its stable code. */
export class Refused extends Error {
  constructor(readonly error: GraphQLFormattedError) {
    super(error.message);
  }
}

async function post<Data>(headers: Record<string, string>, body: string | FormData): Promise<Data> {
  const response = await fetch(url, { method: "POST", headers, body });
  const { data, errors } = (await response.json()) as { data: Data; errors?: GraphQLFormattedError[] };
  if (errors) throw new Refused(errors[0]);
  return data;
}

/** Sends a query or mutation. */
export function ask<Data>(query: string, variables: Record<string, unknown>): Promise<Data> {
  return post<Data>({ "Content-Type": "application/json" }, JSON.stringify({ query, variables }));
}

/** Sends a mutation with a file as its variable $file, as in the GraphQL multipart request spec. */
export function upload<Data>(query: string, variables: Record<string, unknown>, file: Blob): Promise<Data> {
  const form = new FormData();
  form.set("operations", JSON.stringify({ query, variables: { ...variables, file: null } }));
  form.set("map", JSON.stringify({ 0: ["variables.file"] }));
  form.set("0", file);
  return post<Data>({ "GraphQL-Require-Preflight": "1" }, form);
}

type Ended = { outcome: string; exitCode: number | null };
type Event = { cursor: string; stream?: "STDOUT" | "STDERR"; base64?: string; execution?: Ended };

/** Yields each event once: after a broken connection it resumes after the last one. */
export async function* follow(id: string): AsyncGenerator<Event> {
  const query = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
    cursor ... on ExecutionOutput { stream base64 } ... on ExecutionFinished { execution { outcome exitCode } } } }`;
  for (let after: string | undefined; ; await pause(500)) {
    // The client's own retries repeat the first variables, so the output, and never close the next socket.
    const client = createClient({ url: url.replace("http", "ws"), webSocketImpl: WebSocket, retryAttempts: 0 });
    try {
      for await (const { data, errors } of client.iterate<{ executionEvents: Event }>({ query, variables: { id, after } })) {
        if (!data) throw errors;
        yield data.executionEvents;
        after = data.executionEvents.cursor;
        if (data.executionEvents.execution) return;
      }
    } catch (error) {
      // A list is the server's answer. Anything else is a broken connection.
      if (Array.isArray(error) && !error[0].extensions.retryable) throw new Refused(error[0]);
    }
  }
}
