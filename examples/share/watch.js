const subscription = `subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) {
  cursor ... on ExecutionOutput { stream text } ... on ExecutionFinished { execution { outcome exitCode } } } }`;

/** An error of the server. Its code is UNAUTHENTICATED when the grant has ended. */
export class Refused extends Error {
  constructor({ message, extensions }) {
    super(message);
    this.code = extensions.code;
  }
}

/** Yields each event of an execution once, by server-sent events: after a broken connection it resumes after the last one. */
export async function* watch({ rockpool, executionId, grant }) {
  for (let after = null; ; await new Promise((resolve) => setTimeout(resolve, 500))) {
    try {
      for await (const { data, errors } of results(rockpool, grant, { id: executionId, after })) {
        if (errors && !errors[0].extensions.retryable) throw new Refused(errors[0]);
        if (errors) break;
        yield data.executionEvents;
        after = data.executionEvents.cursor;
        if (data.executionEvents.execution) return;
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
      // The connection broke: connect again.
    }
  }
}

/** Yields the results of one connection. */
async function* results(rockpool, grant, variables) {
  const response = await fetch(`${rockpool}/graphql`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream", Authorization: `Bearer ${grant}` },
    body: JSON.stringify({ query: subscription, variables }),
  });
  if (!response.ok) return yield await response.json(); // for example, the grant has ended
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (let text = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (text + decoder.decode(value, { stream: true })).split("\n");
      text = lines.pop(); // incomplete as yet
      for (const line of lines) if (line.startsWith("data: {")) yield JSON.parse(line.slice("data: ".length));
    }
  } finally {
    await reader.cancel().catch(() => {}); // it may be broken already
  }
}
