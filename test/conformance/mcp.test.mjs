// Tests the API for AI agents with the official clients: both generations of the TypeScript
// client, and the inspector.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Client as NewClient, StreamableHTTPClientTransport as NewHTTP } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewStdio } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ask, binary, serve } from "./server.mjs";

const token = "conformance-token-of-the-first-administrator";
let server;
let endpoint;
before(async () => {
  server = await serve({ token, compat: "mcp" });
  endpoint = server.url.replace("/graphql", "/mcp");
});
after(() => server.stop());

const api = (query, variables) => ask(server.url, query, variables, token);

async function overHTTP(shown = token, session) {
  const headers = { Authorization: `Bearer ${shown}` };
  const transport = new StreamableHTTPClientTransport(new URL(endpoint), { requestInit: { headers }, sessionId: session });
  const client = new Client({ name: "conformance", version: "1" });
  await client.connect(transport);
  return {
    client,
    transport,
    async leave() {
      await transport.terminateSession();
      await client.close();
    },
  };
}

const program = () => ({
  command: binary,
  args: ["mcp", "--server", server.url.replace("/graphql", "")],
  env: { ...process.env, ROCKPOOL_TOKEN: token },
});

async function overStdio() {
  const client = new Client({ name: "conformance", version: "1" });
  await client.connect(new StdioClientTransport(program()));
  return { client, leave: () => client.close() };
}

async function overNewStdio() {
  const client = new NewClient({ name: "conformance", version: "2" });
  await client.connect(new NewStdio(program()));
  return { client, leave: () => client.close() };
}

async function overNewHTTP() {
  const transport = new NewHTTP(new URL(endpoint), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
  const client = new NewClient({ name: "conformance", version: "2" });
  await client.connect(transport);
  return {
    client,
    async leave() {
      await transport.terminateSession();
      await client.close();
    },
  };
}

async function held() {
  const { runners } = await api(`{ runners(states: [CLAIMED], first: 100) { nodes { id } } }`);
  return runners.nodes.map((runner) => runner.id);
}

// Waits for a condition that nothing announces.
async function until(what, condition) {
  for (let left = 1200; left > 0; left--) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`not after a minute: ${what}`);
}

const connections = { "over HTTP": overHTTP, "over stdio": overStdio, "over HTTP, version 2": overNewHTTP, "over stdio, version 2": overNewStdio };
for (const [how, connect] of Object.entries(connections)) {
  test(`tools ${how}`, async () => {
    const { client, leave } = await connect();
    assert.match(client.getInstructions(), /run_program/);
    const { tools } = await client.listTools();
    assert.deepEqual(
      tools.map((tool) => tool.name).sort(),
      ["close_session", "execute", "list_environments", "list_files", "open_session", "read_file", "read_output", "run_program", "write_files"],
    );
    const call = async (name, args) => (await client.callTool({ name, arguments: args })).structuredContent;

    const python = await call("run_program", {
      language: "python3",
      source: `import sys, helper\nprint(helper.twice(sys.stdin.read()), sys.argv[1])\nopen("made.txt", "w").write("made")\nopen("made.bin", "wb").write(bytes([255, 0]))`,
      args: ["one argument"],
      files: [{ path: "helper.py", text: "def twice(text): return text * 2" }],
      stdin: "grüße ",
    });
    assert.equal(python.outcome, "EXITED");
    assert.equal(python.exitCode, 0, python.stderr);
    assert.equal(python.stdout, "grüße grüße  one argument\n");
    const made = Object.fromEntries(python.files.map((file) => [file.path, file]));
    assert.equal(made["made.txt"].text, "made");
    assert.equal(made["made.bin"].base64, "/wA=");
    assert.equal(made["helper.py"], undefined);

    const built = await call("run_program", { language: "c", source: "int main() { return 7 }" });
    assert.deepEqual([built.phase, built.outcome], ["build", "EXITED"]);
    assert.match(built.stderr, /expected/);
    const shell = await call("run_program", { environment: "shell", shell: 'echo "$GREETING"; kill -9 $$', variables: { GREETING: "hi" } });
    assert.deepEqual([shell.outcome, shell.signal, shell.stdout], ["SIGNALED", "SIGKILL", "hi\n"]);
    const late = await call("run_program", { environment: "shell", shell: "sleep 100", timeLimit: 1 });
    assert.equal(late.outcome, "TIME_LIMIT");

    const { session } = await call("open_session", { environment: "shell" });
    await call("write_files", { session, files: [{ path: "src/run.sh", text: "#!/bin/sh\necho ran > out; cat out\n" }] });
    const ran = await call("execute", { session, command: ["./src/run.sh"] });
    assert.equal(ran.stdout, "ran\n", ran.stderr);
    assert.equal((await call("read_file", { session, path: "out" })).text, "ran\n");
    assert.ok((await call("list_files", { session, recursive: true })).files.some((file) => file.path === "src/run.sh"));

    const refused = await client.callTool({ name: "execute", arguments: { session, shell: "true", timeLimit: 0 } });
    assert.equal(refused.isError, true);
    assert.deepEqual([refused.structuredContent.error.code, refused.structuredContent.error.field], ["INVALID_INPUT", "timeLimit"]);
    await until("the runners of programs that have ended are released", async () => String(await held()) === session);
    await leave();
    await until("the session's runner is released", async () => (await held()).length === 0);
  });

  test(`live output ${how}, and cancelling`, async () => {
    const { client, leave } = await connect();
    const { session } = (await client.callTool({ name: "open_session", arguments: { environment: "shell" } })).structuredContent;
    const request = (shell, options) => {
      const params = { name: "execute", arguments: { session, shell } };
      return client instanceof NewClient ? client.callTool(params, options) : client.callTool(params, undefined, options);
    };
    // The program waits for a file, which is written only after its output has arrived.
    let answered;
    const waiting = await request("echo ready; until [ -e go ]; do sleep 0.05; done; echo gone", {
      onprogress({ message }) {
        if (message.includes("ready")) answered = client.callTool({ name: "write_files", arguments: { session, files: [{ path: "go", text: "" }] } });
      },
    });
    assert.equal(waiting.structuredContent.stdout, "ready\ngone\n");
    await answered;

    const abort = new AbortController();
    let execution;
    await assert.rejects(
      request("echo ready; sleep 1000", {
        signal: abort.signal,
        onprogress({ message }) {
          execution ??= message.match(/execution (\S+) has started/)?.[1];
          if (message.includes("ready")) abort.abort();
        },
      }),
    );
    await until("the execution is cancelled", async () => {
      const { execution: x } = await api(`query($id: ID!) { execution(id: $id) { outcome } }`, { id: execution });
      return x.outcome === "CANCELLED";
    });
    await leave();
  });
}

test("long output is cut in the middle, and the cursor has the rest", async () => {
  const { client, leave } = await overHTTP();
  const call = async (name, args) => (await client.callTool({ name, arguments: args })).structuredContent;
  const cut = await call("run_program", { environment: "shell", shell: "seq 200000" });
  const all = Array.from({ length: 200_000 }, (_, i) => `${i + 1}\n`).join("");
  const [head, tail] = cut.stdout.split(/\n\[… \d+ bytes are cut out here: .* …\]\n/);
  assert.ok(all.startsWith(head) && all.endsWith(tail) && head.length > 10_000 && tail.length > 10_000);
  assert.equal(head.length + tail.length + cut.omittedBytes, all.length);
  let text = "";
  for (let page = { cursor: cut.cursor }; !page.end; text += page.chunks.map((chunk) => chunk.text).join("")) {
    page = await call("read_output", { execution: cut.execution, cursor: page.cursor });
  }
  assert.ok(all.endsWith(text) && text.length >= cut.omittedBytes + tail.length);
  await leave();
});

test("an MCP session is its token's", async () => {
  const make = (name) => api(`mutation($in: CreateTokenInput!) { createToken(input: $in) { secret token { id } } }`, { in: { name, role: "CLIENT", tenant: "default" } });
  const [mine, other] = [await make("mine"), await make("other")].map((made) => made.createToken);
  const agent = await overHTTP(mine.secret);
  await agent.client.callTool({ name: "open_session", arguments: { environment: "shell" } });
  const post = (shown, headers) =>
    fetch(endpoint, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream", Authorization: `Bearer ${shown}`, ...headers },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" }),
    });
  const session = { "Mcp-Session-Id": agent.transport.sessionId };
  assert.equal((await post(mine.secret, session)).status, 200);
  assert.equal((await post(other.secret, session)).status, 404);
  assert.equal((await post("nobody's", session)).status, 401);
  assert.equal((await post(mine.secret, { ...session, Origin: "https://evil.example" })).status, 403);
  assert.equal((await held()).length, 1);
  await api(`mutation($id: ID!) { revokeToken(id: $id) { revoked } }`, { id: mine.token.id });
  await until("what the token held is released", async () => (await held()).length === 0);
  assert.equal((await post(mine.secret, session)).status, 401);
  await agent.client.close();
});

test("the inspector", async () => {
  const inspector = new URL("node_modules/.bin/mcp-inspector", import.meta.url).pathname;
  const inspect = async (...args) => {
    const { stdout } = await promisify(execFile)(inspector, ["--cli", endpoint, "--transport", "http", "--header", `Authorization: Bearer ${token}`, ...args]);
    return JSON.parse(stdout);
  };
  assert.equal((await inspect("--method", "tools/list")).tools.length, 9);
  const ran = await inspect("--method", "tools/call", "--tool-name", "run_program", "--tool-arg", "language=python3", "--tool-arg", "source=print(6 * 7)");
  assert.equal(ran.structuredContent.stdout, "42\n");
});

test("the example", async () => {
  const example = new URL("../../examples/mcp/run.sh", import.meta.url).pathname;
  const { stdout } = await promisify(execFile)(example, ["python3", "print(6 * 7)"], {
    env: { ...process.env, ROCKPOOL_SERVER: server.url.replace("/graphql", ""), ROCKPOOL_TOKEN: token },
  });
  assert.deepEqual(JSON.parse(stdout), { outcome: "EXITED", exitCode: 0, stdout: "42\n", stderr: "" });
});
