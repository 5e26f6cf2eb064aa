// Runs every example against the real server, with real sandboxes, over a connection
// that breaks.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { ask, cutter, serve } from "../test/conformance/server.mjs";
import { Refused, watch } from "./share/watch.js";

const here = new URL(".", import.meta.url).pathname;
const examples = {
  "curl, POST and server-sent events": ["bash", "curl/run.sh"],
  "TypeScript, graphql-ws": ["./typescript/node_modules/.bin/tsx", "typescript/run.ts"],
  "Python, its standard library": ["python3", "python/run.py"],
  "Go, genqlient": ["./.bin/go-example"],
  "Ruby, faye-websocket": ["ruby", "ruby/websocket.rb"],
  "Ruby, Net::HTTP": ["ruby", "ruby/sse.rb"],
};

// It echoes its input within some seconds, including bytes that aren't text. One line in
// ten goes to stderr.
const program = `
import sys, time
for n, line in enumerate(sys.stdin.buffer):
    out = sys.stderr if n % 10 == 9 else sys.stdout
    out.buffer.write(b"%d \\xff " % n + line)
    out.buffer.flush()
    time.sleep(0.005)
sys.exit(3)
`;
const lines = Array.from({ length: 400 }, (_, n) => `Zeile ${n} über äöü 🦀 $(touch x) '"\\\t${"=".repeat(n % 60)}\n`);
const echoed = (which) =>
  Buffer.concat(lines.flatMap((line, n) => (which(n) ? [Buffer.from(`${n} `), Buffer.from([0xff, 0x20]), Buffer.from(line)] : [])));

const limit = 300_000; // ms: ends a test that hangs

let server;
let directory;
before(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "rockpool-examples-"));
  await writeFile(path.join(directory, "echo.py"), program);
  await writeFile(path.join(directory, "hasty.py"), `print("bye")`);
  await writeFile(path.join(directory, "greet.py"), `import sys\nnames = sys.stdin.read().split()\nfor name in names: print("hello", name)\nsys.exit(3)`);
  server = await serve({ compat: "poseidon" });
});
after(async () => {
  await server?.stop();
  await rm(directory, { recursive: true, force: true });
});

/** Runs an example to its end. */
function run([command, ...args], url, program, stdin) {
  return new Promise((resolve, reject) => {
    const env = { ...process.env, ROCKPOOL_SERVER: url.replace(/\/graphql$/, "") };
    const child = spawn(command, [...args, path.join(directory, program)], { cwd: here, env });
    const out = { stdout: [], stderr: [] };
    for (const stream of ["stdout", "stderr"]) child[stream].on("data", (chunk) => out[stream].push(chunk));
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout: Buffer.concat(out.stdout), stderr: Buffer.concat(out.stderr) }));
    child.stdin.on("error", () => {}); // the example may not read its input
    Promise.resolve(stdin).then((bytes) => child.stdin.end(bytes), reject);
  });
}

/** Compares bytes, and shows where they differ. */
function same(got, want) {
  let at = 0;
  while (at < want.length && got[at] === want[at]) at++;
  const shown = (bytes) => bytes.subarray(Math.max(at - 100, 0), at + 200).toString("latin1");
  if (!got.equals(want)) assert.fail(`${got.length} bytes, not ${want.length}; at ${at}:\n${shown(got)}\ninstead of\n${shown(want)}`);
}

describe("examples", { concurrency: 3 }, () => {
  for (const [name, command] of Object.entries(examples)) {
    test(`${name}: every byte once, over a connection that is cut three times`, { timeout: limit }, async () => {
      const lengths = [600, 3_000, 9_000];
      const proxy = await cutter(server.url, () => lengths.shift() ?? Infinity, /text\/event-stream|upgrade: *websocket/i);
      try {
        const got = await run(command, proxy.url, "echo.py", lines.join(""));
        same(got.stderr, Buffer.concat([echoed((n) => n % 10 === 9), Buffer.from("EXITED, exit code 3\n")]));
        same(got.stdout, echoed((n) => n % 10 !== 9));
        assert.equal(got.code, 3);
        assert.equal(proxy.cuts(), 3);
      } finally {
        await proxy.stop();
      }
    });

    test(`${name}: a program that isn't there fails, and leaves no runner`, { timeout: limit }, async () => {
      assert.notEqual((await run(command, server.url, "missing.py", "")).code, 0);
    });
  }
});

/** Returns how many executions have ended. */
async function ended() {
  return (await ask(server.url, `{ executions(states: [FINISHED]) { totalCount } }`)).executions.totalCount;
}

// The program has ended when its input arrives, which is a CONFLICT.
describe("a program that doesn't read", { concurrency: 1 }, () => {
  for (const [name, command] of Object.entries(examples)) {
    test(name, { timeout: limit }, async () => {
      const before = await ended();
      const late = (async () => {
        while ((await ended()) === before);
        return "unread";
      })();
      const got = await run(command, server.url, "hasty.py", late);
      same(got.stderr, Buffer.from("EXITED, exit code 0\n"));
      same(got.stdout, Buffer.from("bye\n"));
      assert.equal(got.code, 0);
    });
  }
});

// A terminal echoes its input, and turns \n into \r\n.
test("Ruby, CodeOcean's API", { timeout: limit }, async () => {
  const got = await run(["ruby", "ruby/codeocean.rb"], server.url, "greet.py", "Ada\nGräce\n");
  same(got.stderr, Buffer.from('{"type":"exit","data":3}\n'));
  same(got.stdout, Buffer.from("Ada\r\nGräce\r\nhello Ada\r\nhello Gräce\r\n"));
  assert.equal(got.code, 3);
});

test("no example leaves a runner behind", async () => {
  const { runners } = await ask(server.url, `{ runners(states: [CLAIMED]) { totalCount } }`);
  assert.equal(runners.totalCount, 0);
});

/** Starts the example platform, and returns its address. */
async function platform(env) {
  const child = spawn(process.execPath, ["share/server.mjs"], { cwd: here, env: { ...process.env, PORT: "0", ...env } });
  let log = "";
  child.stderr.on("data", (text) => (log += text));
  const url = await new Promise((resolve, reject) => {
    child.stdout.on("data", (text) => resolve(String(text).trim()));
    child.once("exit", (code) => reject(new Error(`the platform ended with ${code}: ${log}`)));
  });
  return { url, stop: () => child.kill() };
}

describe("share, a platform's server and its page", { concurrency: 1 }, () => {
  const token = "the-token-of-the-platform-which-is-long";
  let guarded;
  before(async () => void (guarded = await serve({ token })));
  after(() => guarded?.stop());

  test("a browser watches one execution with a grant, over a connection that is cut", { timeout: limit }, async () => {
    const lengths = [600, 600, 600]; // later connections may carry less
    const proxy = await cutter(guarded.url, () => lengths.shift() ?? Infinity, /text\/event-stream/);
    const { url, stop } = await platform({ ROCKPOOL_SERVER: new URL(proxy.url).origin, ROCKPOOL_TOKEN: token });
    try {
      assert.match(await (await fetch(url)).text(), /watch\.js/);
      const started = await (await fetch(`${url}/run`, { method: "POST" })).json();
      assert.ok(!JSON.stringify(started).includes(token));
      let printed = "";
      let ended;
      for await (const { text, execution } of watch(started)) {
        printed += text ?? "";
        ended = execution;
      }
      assert.equal(printed, Array.from({ length: 10 }, (_, n) => `line ${n}\n`).join(""));
      assert.deepEqual(ended, { outcome: "EXITED", exitCode: 0 });
      assert.ok(proxy.cuts() >= 1, `${proxy.cuts()} cuts`);

      await assert.rejects(ask(guarded.url, `{ executions { totalCount } }`, {}, started.grant), /FORBIDDEN/);
      const other = watch({ ...started, executionId: "another" });
      await assert.rejects(other.next(), (error) => error instanceof Refused && error.code === "EXECUTION_NOT_FOUND");
      const forged = watch({ ...started, grant: started.grant.slice(0, -2) });
      await assert.rejects(forged.next(), (error) => error instanceof Refused && error.code === "UNAUTHENTICATED");
    } finally {
      stop();
      await proxy.stop();
    }
  });

  test("a platform whose token is refused reports no more than that to its page", { timeout: limit }, async () => {
    const { url, stop } = await platform({ ROCKPOOL_SERVER: new URL(guarded.url).origin, ROCKPOOL_TOKEN: "wrong" });
    try {
      const answer = await fetch(`${url}/run`, { method: "POST" });
      assert.equal(answer.status, 502);
      assert.equal(await answer.text(), "the program can't be run now");
    } finally {
      stop();
    }
  });
});

test("an example is something to read: files of under 60 lines", async () => {
  for (const file of ["curl/run.sh", "go/follow.go", "go/main.go", "python/run.py", "ruby/sse.rb", "ruby/websocket.rb", "share/page.html", "share/server.mjs", "share/watch.js", "typescript/rockpool.ts", "typescript/run.ts"]) {
    const text = await readFile(path.join(here, file), "utf8");
    assert.ok(text.trimEnd().split("\n").length < 60, file);
  }
});
