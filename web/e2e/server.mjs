// The real server with real sandboxes, which can be killed and started again.
import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";

const binary = new URL("../../bin/rockpool", import.meta.url).pathname;

const all = [];

/** Returns the logs of all servers of this process. */
export const logs = () => all.map((server) => server.log).join("\n");

export class Server {
  /** The server's log. */
  log = "";
  /** The server's URL without a path. It stays the same across restarts. */
  url = "";
  #data = "";
  #child;
  #ended;
  #listen;
  #token;
  #args;

  /** Starts a server: with `token` it requires that token, `args` are more arguments, `listen` sets the address. */
  static async start({ token, args = [], listen = "127.0.0.1:0" } = {}) {
    const server = new Server();
    all.push(server);
    server.#token = token;
    server.#args = args;
    server.#listen = listen;
    server.#data = await mkdtemp(path.join(tmpdir(), "rockpool-web-"));
    if (token) await writeFile(path.join(server.#data, "token"), token, { mode: 0o600 });
    await server.#spawn();
    return server;
  }

  async #spawn() {
    const child = spawn(
      binary,
      ["serve", "--listen", this.#listen, "--data", this.#data, "--cgroup-parent", `rockpool/web-${process.pid}`, "--on-stop", "remove", "--log-level", "warn", ...(this.#token ? ["--token-file", path.join(this.#data, "token")] : []), ...this.#args],
      { stdio: ["ignore", "pipe", "pipe"] },
    );
    this.#child = child;
    this.#ended = new Promise((resolve) => child.once("exit", resolve));
    child.stderr.on("data", (text) => (this.log += text));
    this.url = await new Promise((resolve, reject) => {
      let out = "";
      child.stdout.on("data", (text) => {
        out += text;
        const ready = out.match(/rockpool is ready: (http:\S+)\/graphql/);
        if (ready) resolve(ready[1]);
      });
      child.once("exit", (code) => reject(new Error(`rockpool serve ended with ${code}: ${this.log}`)));
      child.once("error", (error) => reject(new Error(`${error.message}: run "make build"`)));
    });
    this.#listen = new URL(this.url).host;
  }

  /** Kills the server with SIGKILL, and starts it again with the same data and address. */
  async crash(meanwhile = async () => {}) {
    this.#child.kill("SIGKILL");
    await this.#ended;
    await meanwhile();
    await this.#spawn();
  }

  async stop() {
    this.#child.kill("SIGTERM");
    await this.#ended;
    await rm(this.#data, { recursive: true, force: true });
  }

  /** Sends a query or a mutation, and returns the data. */
  async ask(query, variables) {
    const response = await fetch(`${this.url}/graphql`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(this.#token && { Authorization: `Bearer ${this.#token}` }) },
      body: JSON.stringify({ query, variables }),
    });
    const answer = await response.json();
    if (answer.errors) throw new Error(JSON.stringify(answer.errors));
    return answer.data;
  }

  /** Sends a request that takes long, and drops the response. fetch would give up after five minutes. */
  begin(query) {
    const headers = { "Content-Type": "application/json", ...(this.#token && { Authorization: `Bearer ${this.#token}` }) };
    const begun = request(`${this.url}/graphql`, { method: "POST", headers }, (response) => response.resume());
    begun.on("error", () => {}); // the server may end first
    begun.end(JSON.stringify({ query }));
  }

  /** Runs a shell command, and returns the execution's id. */
  async run(shell, environmentId = "shell") {
    const data = await this.ask(`mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, { in: { environmentId, waitFor: 60, shell, timeLimit: 600 } });
    return data.run.execution.id;
  }

  /** Waits for the end of an execution. */
  async end(id) {
    return (await this.ask(`query($id: ID!) { execution(id: $id, waitFor: 120) { state outcome exitCode } }`, { id })).execution;
  }
}
