// Tables: live, filtered and paged by the server, and usable by keyboard.
import assert from "node:assert/strict";
import { after, afterEach, before } from "node:test";
import { launch, open, scrollDown, test } from "./browser.mjs";
import { Registry } from "./registry.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

let server;
let browser;
let page;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});
afterEach(async () => {
  const { mistakes } = page;
  await page.context().close();
  assert.deepEqual(mistakes, [], "mistakes on the page");
});

async function visit(address, script) {
  page = await open(browser);
  if (script) await page.addInitScript(script);
  await page.goto(server.url + address);
}

const claim = async (value) =>
  (await server.ask(`mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`, { in: { environmentId: "shell", waitFor: 60, labels: [{ name: "course", value }] } })).claimRunner.runner.id;
const start = async (runnerId, shell) =>
  (await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, { in: { runnerId, shell, timeLimit: 600 } })).startExecution.execution.id;
const printed = (id, text) =>
  until(`the execution prints ${text}`, async () => {
    const { execution } = await server.ask(`query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, { id });
    return execution.output.chunks.map((chunk) => chunk.text).join("").includes(text);
  });

/** Presses Tab until the focused element has this name. No element may trap the focus. */
async function tabTo(name, key = "Tab") {
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press(key);
    const at = await page.evaluate(() => {
      const it = document.activeElement;
      return it?.getAttribute("aria-label") ?? it?.textContent ?? "";
    });
    if (at.trim() === name) return;
  }
  assert.fail(`the keyboard doesn't come to "${name}"`);
}

test("the table of runners shows claims and releases without polling, and the server filters it", async () => {
  await visit("/runners", () => {
    // The table's polling timer of 5 s never fires.
    const later = window.setTimeout;
    window.setTimeout = (work, ms, ...args) => (Math.abs(ms - 5_000) < 5 ? 0 : later(work, ms, ...args));
  });
  await page.waitForSelector(".table-row");
  const runner = await claim("algorithms");
  const row = page.locator(".table-row", { hasText: "course=algorithms" });
  await row.waitFor();

  const other = await claim("physics");
  const asked = page.waitForRequest((request) => request.postDataJSON()?.variables?.heldBy === "PHYS");
  await page.fill("[aria-label='Part of a holder or a label']", "PHYS");
  await asked;
  await row.waitFor({ state: "detached" });
  await page.locator(".table-row", { hasText: "course=physics" }).waitFor();
  assert.match(await page.textContent(".table-foot"), /^1 runner$/);
  assert.match(page.url(), /held-by=PHYS/);
  await page.selectOption("label:has-text('State') select", "IDLE");
  await page.waitForSelector("text=No matches for these filters");
  await page.click("text=Clear the filters");
  await row.waitFor();

  for (const id of [runner, other]) await server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id });
  await row.waitFor({ state: "detached" });
});

test("10,000 runners scroll, and only the visible ones are rendered", async (t) => {
  // So many runners fit no test machine, so the test fakes the server's responses.
  const n = 10_000;
  const id = (i) => `01a00000-0000-7000-8000-${String(i).padStart(12, "0")}`;
  await visit("/");
  await page.route("**/graphql", async (route) => {
    const body = route.request().postDataJSON();
    if (!/^\s*query Runners(Usage)?\b/.test(body?.query ?? "")) return route.continue();
    const { first, after } = body.variables;
    const from = after === null ? n : Number(after);
    const nodes = Array.from({ length: Math.min(first, from) }, (_, i) => ({ id: id(from - i - 1), environmentId: "shell", state: "IDLE", createdAt: "2026-11-22T01:00:00Z", claim: null, usage: null }));
    const edges = nodes.map((node, i) => ({ cursor: String(from - i - 1), node }));
    await route.fulfill({ json: { data: { runners: { nodes, edges, totalCount: n, pageInfo: { hasNextPage: from > first, endCursor: String(from - nodes.length) } } } } });
  });
  await page.click("role=navigation >> text=Runners");
  await page.waitForSelector("text=100 of 10,000 runners");
  await page.focus(".table-scroll");
  // A refresh begins at the first runner in pages of 500. Scrolling continues after the first 100.
  const isNext = (after) => after !== null && (n - Number(after)) % 500 === 100;
  t.diagnostic(await scrollDown(page, n, () => page.keyboard.press("End"), isNext)); // the keyboard scrolls it
});

test("executions are signalled and cancelled from their table by keyboard", async () => {
  const runner = await claim("keys");
  const id = await start(runner, "trap 'echo caught' USR1; echo ready; while :; do sleep 0.1; done");
  await printed(id, "ready");
  await visit("/executions?state=RUNNING");
  const row = page.locator(".table-row", { hasText: "caught" });
  await row.waitFor();
  const command = await row.locator("a.mono").first().textContent();

  await tabTo(`Cancel ${command}`);
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog >> text=Cancel this execution?");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  await row.locator("text=Running").waitFor();

  await tabTo(`Signal ${command}`, "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog >> text=Send a signal");
  // The close event of an earlier dialog can arrive now. The open dialog must stay.
  await page.evaluate(() => document.querySelectorAll("dialog").forEach((it) => it.dispatchEvent(new Event("close"))));
  await page.focus("dialog select");
  // Each key's effect is awaited: typed letters that are a second apart choose another signal.
  for (const name of ["TERM", "HUP", "QUIT", "USR1"]) {
    await page.keyboard.press("ArrowDown");
    await page.waitForFunction((wanted) => document.activeElement.value === wanted, name);
  }
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  await printed(id, "caught"); // before it is cancelled, which kills it

  await tabTo(`Cancel ${command}`);
  await page.keyboard.press("Enter");
  await tabTo("Cancel it");
  await page.keyboard.press("Enter");
  await row.waitFor({ state: "detached" }); // it is no longer running
  await page.selectOption("label:has-text('State') select", "FINISHED");
  await page.locator(".table-row", { hasText: "caught" }).locator("text=Cancelled").waitFor();
  await page.click("a.mono:has-text('caught')");
  await page.waitForSelector(".output-line >> text=caught"); // the signal arrived
  await server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: runner });
});

test("a program is written and run by keyboard", async () => {
  await visit("/");
  await page.waitForSelector(".pool-row");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  await tabTo("Run a program");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".cm-content");
  for (let i = 0; ; i++) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement?.shadowRoot?.activeElement?.classList.contains("cm-content") ?? false)) break;
    assert.ok(i < 60, "the keyboard doesn't come to the editor");
  }
  await page.keyboard.press("Control+End");
  await page.keyboard.type("print(6 * 7)");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector(".tag >> text=Succeeded");
  assert.equal(await page.textContent(".output-line >> nth=1"), "42");
  await page.keyboard.press("Escape"); // then Tab leaves the editor
  await page.keyboard.press("Tab");
  assert.ok(await page.evaluate(() => !document.activeElement?.shadowRoot));
});

test("an environment may be called new", async () => {
  await server.ask(`mutation { putEnvironment(input: {id: "new", poolSize: 0}) { created } }`);
  await visit("/");
  await page.click(".pool-row >> text=new");
  await page.waitForSelector("h2:text-is('Configuration')");
  assert.equal(await page.textContent("h1"), "new");
  await page.goto(`${server.url}/new-environment`);
  await page.waitForSelector("text=Create the environment");
  await page.waitForSelector(".nav [aria-current] >> text=Overview");
  await server.ask(`mutation { deleteEnvironment(input: {id: "new"}) { deleted } }`);
});

test("the overview stays correct after the server is killed", async () => {
  await visit("/");
  const row = page.locator(".pool-row", { hasText: "node" });
  await row.locator("text=2 idle").waitFor();
  await server.crash(async () => {
    await page.waitForSelector("text=Reconnecting");
  });
  await server.ask(`mutation { putEnvironment(input: {id: "node", poolSize: 1}) { created } }`);
  await row.locator("[aria-label*='pool size 1']").waitFor();
  await row.locator("text=1 idle").waitFor();
  await page.waitForSelector(".link-state", { state: "detached" });
});

test("an environment's page shows the progress of its image", async () => {
  const registry = await Registry.start();
  try {
    await server.ask(`mutation($image: String!) { putEnvironment(input: {id: "image", image: $image, poolSize: 0}) { created } }`, { image: registry.reference });
    await visit("/environments/image");
    await page.waitForSelector("text=/pulled: 0 of 1 layer, 2 MiB of 4/");
    const bar = await page.waitForSelector("progress");
    assert.ok((await bar.evaluate((it) => it.value / it.max)) > 0.4);
    registry.release();
    await page.waitForSelector("text=Image ready: sha256:");
    assert.equal(await page.locator("progress").count(), 0);
  } finally {
    registry.release();
    await registry.stop();
  }
});
