import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { serverAudits } from "graphql-http";
import { createClient as createSSE } from "graphql-sse";
import { createClient as createWS } from "graphql-ws";
import WebSocket from "ws";
import { ask, cutter, events, follow, run, serve } from "./server.mjs";

let server;
before(async () => {
  server = await serve();
});
after(() => server.stop());

// The program prints for a second, so that clients follow it live.
const lines = 20_000;
const program = `i=0; while [ $i -lt 20 ]; do seq $((i*1000+1)) $((i*1000+1000)); sleep 0.05; i=$((i+1)); done`;
const printed = Array.from({ length: lines }, (_, i) => `${i + 1}\n`).join("");

// Late output arrives in events that may be larger than the bytes that a connection passes before it
// is cut. So the cuts end at some time; otherwise those events would never arrive.
async function cutting() {
  const proxy = await cutter(server.url, () => (proxy.cuts() < 10 ? 4_000 + Math.floor(Math.random() * 20_000) : Infinity));
  return proxy;
}

function whole(seen) {
  assert.equal(seen.output.toString(), printed);
  assert.equal(seen.types[0], "ExecutionStarted");
  assert.equal(seen.types.filter((type) => type === "ExecutionStarted").length, 1);
  assert.ok(!seen.types.includes("ExecutionOutputLost"));
  assert.deepEqual(seen.end, { outcome: "EXITED", exitCode: 0, usage: { outputBytes: printed.length } });
}

test("graphql-http serverAudits", async () => {
  const results = await Promise.all(serverAudits({ url: server.url, fetchFn: fetch }).map((audit) => audit.fn()));
  const failed = results.filter((result) => result.status !== "ok").map((result) => `${result.name}: ${result.reason}`);
  assert.deepEqual(failed, []);
  assert.equal(results.length, 61);
});

// The client library's own retry repeats the first variables. So it is off here, and each attempt
// has a new client.
function overWebSocket(url) {
  return (operation, next) =>
    new Promise((resolve, reject) => {
      const client = createWS({ url: url.replace("http", "ws"), webSocketImpl: WebSocket, retryAttempts: 0, lazy: true });
      client.subscribe(operation, {
        next: (result) => {
          try {
            next(result);
          } catch (error) {
            reject(error);
          }
        },
        // The server's errors are an array; a closed connection is a cut.
        error: (error) => (Array.isArray(error) ? reject(new Error(JSON.stringify(error))) : resolve()),
        complete: () => {
          void client.dispose();
          resolve();
        },
      });
    });
}

test("graphql-ws follows an execution", async () => {
  whole(await follow(await run(server.url, program), overWebSocket(server.url)));
});

test("graphql-ws is cut and resumes", async () => {
  const proxy = await cutting();
  try {
    whole(await follow(await run(server.url, program), overWebSocket(proxy.url)));
    assert.ok(proxy.cuts() >= 5, `${proxy.cuts()} cuts`);
  } finally {
    await proxy.stop();
  }
});

test("graphql-ws runs queries and mutations, and concurrent subscriptions", async () => {
  const client = createWS({ url: server.url.replace("http", "ws"), webSocketImpl: WebSocket, retryAttempts: 0 });
  const once = (query, variables) =>
    new Promise((resolve, reject) => {
      let result;
      client.subscribe({ query, variables }, { next: (r) => (result = r), error: reject, complete: () => resolve(result) });
    });
  assert.equal(typeof (await once("{ version }")).data.version, "string");
  assert.equal((await once(`mutation { releaseRunner(id: "none") { released } }`)).data.releaseRunner.released, false);
  await assert.rejects(once("{ nope }"), (errors) => errors[0].extensions.code === "INVALID_INPUT");
  const id = await run(server.url, program);
  const seen = await Promise.all(
    Array.from({ length: 20 }, async () => {
      let output = "";
      for await (const result of client.iterate({ query: events, variables: { id } })) {
        output += result.data.executionEvents.text ?? "";
      }
      return output;
    }),
  );
  for (const output of seen) assert.equal(output, printed);
  await client.dispose();
});

function overEvents(url, options = {}) {
  return (operation, next) =>
    new Promise((resolve, reject) => {
      const client = createSSE({ url, singleConnection: false, retryAttempts: 0, ...options });
      client.subscribe(operation, {
        next: (result) => {
          try {
            next(result);
          } catch (error) {
            reject(error);
          }
        },
        error: () => resolve(), // cut
        complete: () => {
          client.dispose();
          resolve();
        },
      });
    });
}

test("graphql-sse follows an execution", async () => {
  whole(await follow(await run(server.url, program), overEvents(server.url)));
});

test("graphql-sse is cut and resumes", async () => {
  const proxy = await cutting();
  try {
    whole(await follow(await run(server.url, program), overEvents(proxy.url)));
    assert.ok(proxy.cuts() >= 5, `${proxy.cuts()} cuts`);
  } finally {
    await proxy.stop();
  }
});

// Does what a browser's EventSource does automatically: it reconnects with the id of the last
// event.
test("Last-Event-ID resumes", async () => {
  const id = await run(server.url, program);
  await ask(server.url, `query($id: ID!) { execution(id: $id, waitFor: 60) { outcome } }`, { id });
  const address = new URL(server.url);
  address.search = new URLSearchParams({ query: events, variables: JSON.stringify({ id }) });
  let last;
  let output = "";
  let connections = 0;
  for (let finished = false; !finished; connections++) {
    const headers = { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
    const response = await fetch(address, { headers });
    assert.equal(response.headers.get("content-type"), "text/event-stream; charset=utf-8");
    for (const event of (await response.text()).split("\n\n")) {
      const fields = Object.fromEntries(event.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
      if (fields.event !== "next") continue;
      last = fields.id;
      const data = JSON.parse(fields.data).data.executionEvents;
      output += data.text ?? "";
      finished = data.__typename === "ExecutionFinished" && connections > 0;
      if (connections === 0 && data.text) break; // the rest was lost
    }
  }
  assert.equal(output, printed);
  assert.equal(connections, 2);
});
