// Starts the real server with real sandboxes, and the proxies between it and the clients.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

export const binary = new URL("../../bin/rockpool", import.meta.url).pathname;

/** Serves on a free port with data of its own, and with a token where it is to want one, and the compatible APIs that are named. Its stop() waits for the end. */
export async function serve({ token, compat } = {}) {
  const data = await mkdtemp(path.join(tmpdir(), "rockpool-conformance-"));
  const cgroups = `rockpool/conformance-${process.pid}${token ? "-token" : ""}${compat ? "-compat" : ""}`;
  const file = path.join(data, "token");
  if (token) await writeFile(file, token, { mode: 0o600 });
  const child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--data", data, "--cgroup-parent", cgroups, "--on-stop", "remove", ...(token ? ["--token-file", file] : []), ...(compat ? ["--compat", compat] : [])], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  let log = "";
  child.stderr.on("data", (text) => (log += text));
  const url = await new Promise((resolve, reject) => {
    let out = "";
    child.stdout.on("data", (text) => {
      out += text;
      const ready = out.match(/rockpool is ready: (\S+)/);
      if (ready) resolve(ready[1]);
    });
    child.once("exit", (code) => reject(new Error(`rockpool serve ended with ${code}: ${log}`)));
    child.once("error", reject);
  });
  return {
    url,
    async stop() {
      child.kill("SIGTERM");
      await ended;
      await rm(data, { recursive: true, force: true });
    },
  };
}

/** Asks by POST, and returns the data. */
export async function ask(url, query, variables, token) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) },
    body: JSON.stringify({ query, variables }),
  });
  const answer = await response.json();
  if (answer.errors) throw new Error(JSON.stringify(answer.errors));
  return answer.data;
}

/** Runs a shell command, and returns the execution's id. */
export async function run(url, shell) {
  const data = await ask(url, `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, {
    in: { environmentId: "shell", waitFor: 60, shell, timeLimit: 120 },
  });
  return data.run.execution.id;
}

/**
 * A proxy that cuts each connection after this many bytes from the server. With only, it cuts a
 * connection only after a request that matches.
 */
export async function cutter(url, bytes, only) {
  const target = new URL(url);
  const sockets = new Set();
  let cuts = 0;
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(target.port), target.hostname);
    let left = only ? Infinity : bytes();
    client.on("data", (chunk) => {
      if (left === Infinity && only?.test(chunk.toString("latin1"))) left = bytes();
    });
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("close", end);
      socket.on("error", end);
    }
    client.pipe(upstream);
    upstream.on("data", (chunk) => {
      client.write(chunk.subarray(0, left));
      left -= chunk.length;
      if (left <= 0) {
        cuts++;
        end();
      }
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}${target.pathname}`,
    cuts: () => cuts,
    stop() {
      for (const socket of sockets) socket.destroy();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

export const events = `subscription($id: ID!, $after: Cursor) {
  executionEvents(executionId: $id, after: $after) {
    __typename cursor
    ... on ExecutionOutput { stream text base64 }
    ... on ExecutionOutputLost { bytes }
    ... on ExecutionFinished { execution { outcome exitCode usage { outputBytes } } }
  }
}`;

/** Follows an execution to its end. attempt subscribes once, after a cursor. */
export async function follow(id, attempt) {
  const seen = { output: [], types: [], end: undefined };
  let after = null;
  while (!seen.end) {
    await attempt({ query: events, variables: { id, after } }, (result) => {
      if (result.errors) throw new Error(JSON.stringify(result.errors));
      const event = result.data.executionEvents;
      after = event.cursor;
      seen.types.push(event.__typename);
      if (event.base64) seen.output.push(Buffer.from(event.base64, "base64"));
      if (event.execution) seen.end = event.execution;
    });
  }
  return { ...seen, output: Buffer.concat(seen.output) };
}
