// Output across cut connections, killed servers and large amounts.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { cutter } from "../../test/conformance/server.mjs";
import { launch, open, scrollDown, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
  await server.ask(`mutation { putEnvironment(input: {id: "shell", poolSize: 2, defaultTimeLimit: 600}) { created } }`); // for what the playground runs
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Scrolls through the whole output that a page shows, and returns its lines. */
function shown(page) {
  return page.evaluate(async () => {
    const box = document.querySelector(".output-scroll");
    const lines = new Map();
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    for (let top = 0; ; top += box.clientHeight / 2) {
      box.scrollTop = top;
      do await frame();
      while (box.querySelector(".output-line.loading")); // until they came from the server
      for (const line of box.querySelectorAll(".output-line")) lines.set(Number(line.dataset.line), line.textContent.trim());
      if (top >= box.scrollHeight) break;
    }
    return [...lines].sort(([a], [b]) => a - b).map(([, text]) => text);
  });
}

const numbers = (n) => Array.from({ length: n }, (_, i) => String(i + 1));

// It prints until the file "enough" exists, and then more.
const printing = `i=0; until [ -e /workspace/enough ]; do seq $((i+1)) $((i+10)); i=$((i+10)); sleep 0.05; done; seq $((i+1)) $((i+3000))`;
/** Ends the printing execution, and returns the number of its lines. */
async function enough() {
  const { executions } = await server.ask(`{ executions(states: [RUNNING], first: 1) { nodes { id runnerId } } }`);
  const [{ id, runnerId }] = executions.nodes;
  await server.ask(`mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`, { in: { runnerId, write: [{ path: "enough", text: "" }] } });
  await server.end(id);
  return (await server.ask(`query($id: ID!) { execution(id: $id) { lines { total } } }`, { id })).execution.lines.total;
}
const views = {
  "an execution's page": async (page, origin) => page.goto(`${origin}/executions/${await server.run(printing)}`),
  "the playground": async (page, origin) => {
    await page.goto(`${origin}/playground?environment=shell`);
    await page.click(".cm-content");
    await page.keyboard.press("Control+A");
    await page.keyboard.press("Delete"); // what Chromium inserts in the place of colours has a style, which the policy refuses
    await page.keyboard.insertText(printing);
    await page.click("role=button[name=Run]");
  },
  "a shared page": async (page, origin) => {
    const id = await server.run(printing);
    const { createGrant } = await server.ask(`mutation($in: CreateGrantInput!) { createGrant(input: $in) { token } }`, { in: { executionId: id, rights: ["WATCH"] } });
    await page.goto(`${origin}/share/${id}#grant=${createGrant.token}`);
  },
};
for (const [name, begin] of Object.entries(views)) {
  test(`cut connections and a killed server leave no gap and no duplicate in the output that ${name} shows`, async () => {
    // Events only report new output; the lines are loaded by requests.
    const proxy = await cutter(server.url, () => (proxy.cuts() < 3 ? 2_000 : Infinity), /graphql-transport-ws/);
    const page = await open(browser);
    try {
      await begin(page, new URL(proxy.url).origin);
      await page.waitForSelector(".output-line");
      await until("a connection was cut", () => proxy.cuts() > 0);
      await server.crash(async () => {
        await page.waitForSelector("text=Reconnecting");
      });
      const n = await enough();
      await page.waitForSelector(".tag >> text=Succeeded");
      assert.ok(n > 3_000, `only ${n} lines were printed`);
      assert.deepEqual(await shown(page), numbers(n));
      await page.waitForSelector(".link-state", { state: "detached" });
    } finally {
      await page.context().close();
      await proxy.stop();
    }
  });
}

test("50 MB of output leave the page usable", async (t) => {
  await server.ask(`mutation { putEnvironment(input: {id: "flood", poolSize: 1, outputLimit: 200000000, resources: {memoryMiB: 256}}) { created } }`);
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "flood", waitFor: 60}) { runner { id } } }`);
  const shell = `seq -f '%.0f abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz' 16000 > part; echo begin; read line; for i in $(seq 54); do cat part; done; read line; echo the end`;
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, { in: { runnerId: claimRunner.runner.id, shell, stdin: true, timeLimit: 600 } });
  const { id } = startExecution.execution;
  const proceed = () => server.ask(`mutation($id: ID!) { writeStdin(input: {executionId: $id, text: "\\n"}) { offset } }`, { id });
  const page = await open(browser);
  await page.goto(`${server.url}/executions/${id}`);
  await page.waitForSelector(".output-line >> text=begin");
  await page.evaluate(() => {
    window.seen = { lines: 0 };
    new MutationObserver(() => {
      window.seen.lines = Math.max(window.seen.lines, document.querySelectorAll(".output-line").length);
    }).observe(document.body, { childList: true, subtree: true });
  });
  const click = async () => {
    const wrapped = (await page.getAttribute("button:text-is('Wrap')", "aria-pressed")) === "true";
    await page.click("button:text-is('Wrap')");
    await page.waitForSelector(`button[aria-pressed="${!wrapped}"]:text-is('Wrap')`);
  };
  await proceed();
  for (let i = 0; i < 10; i++) await click(); // while it streams
  const { execution } = await server.ask(`query($id: ID!) { execution(id: $id) { state } }`, { id });
  assert.equal(execution.state, "RUNNING");
  await proceed();
  await page.waitForSelector(".tag >> text=Succeeded");
  const { usage } = (await server.ask(`query($id: ID!) { execution(id: $id) { usage { outputBytes } } }`, { id })).execution;
  assert.ok(usage.outputBytes > 50_000_000, `only ${usage.outputBytes} bytes were printed`);
  await page.evaluate(() => document.querySelector(".output-scroll").scrollTo(0, 1e9));
  await page.waitForSelector(".output-line >> text=the end");
  await click();

  const { lines } = await page.evaluate(() => window.seen);
  const debug = await page.context().newCDPSession(page);
  await debug.send("HeapProfiler.collectGarbage");
  const { usedSize } = await debug.send("Runtime.getHeapUsage");
  t.diagnostic(`${lines} lines were in the page, which keeps ${Math.round(usedSize / 2 ** 20)} MiB`);
  assert.ok(lines < 150, `${lines} lines were in the page`);
  assert.ok(usedSize < 40 * 2 ** 20, `the page keeps ${usedSize} bytes`);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
  await server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: claimRunner.runner.id });
});

test("10,000 executions scroll", async (t) => {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "shell", waitFor: 60}) { runner { id } } }`);
  const n = 10_000;
  const batch = 50;
  const start = `mutation($in: StartExecutionInput!) { ${Array.from({ length: batch }, (_, i) => `x${i}: startExecution(input: $in) { execution { id } }`).join(" ")} }`;
  for (let i = 0; i < n; i += batch) {
    const started = await server.ask(start, { in: { runnerId: claimRunner.runner.id, command: ["true"] } });
    await server.end(started[`x${batch - 1}`].execution.id); // a runner's limit of processes
  }
  const page = await open(browser);
  await page.goto(`${server.url}/executions?runner=${claimRunner.runner.id}`);
  await page.waitForSelector(".table-row");
  t.diagnostic(await scrollDown(page, n, () => page.evaluate(() => document.querySelector(".table-scroll").scrollTo(0, 1e9))));
  assert.match(await page.textContent(".table-foot"), /10,000 executions/);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});
