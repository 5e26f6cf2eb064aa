// The page Operations: drain, alerts, pools and capacity.
import assert from "node:assert/strict";
import { after, afterEach, before } from "node:test";
import { judge } from "./axe.mjs";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

const token = "the-first-token-of-this-test-that-is-long-enough";
let server;
let browser;
let pages = [];

before(async () => {
  [server, browser] = await Promise.all([Server.start({ token, args: ["--alert-timeout", "1"] }), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});
afterEach(async () => {
  await server.ask(`mutation { drainCluster(input: {draining: false}) { cluster { kind } } }`); // a failed test may have left it on
  const mistakes = pages.flatMap((page) => page.mistakes);
  await Promise.all(pages.map((page) => page.context().close()));
  pages = [];
  assert.deepEqual(mistakes, [], "mistakes on the pages");
});

async function visit(address, { as = token, ...options } = {}) {
  const page = await open(browser, options);
  pages.push(page);
  await page.addInitScript((text) => sessionStorage.setItem("rockpool.token", text), as);
  await page.goto(server.url + address);
  return page;
}

const made = async (input) => (await server.ask(`mutation($in: CreateTokenInput!) { createToken(input: $in) { secret } }`, { in: input })).createToken.secret;

/** Waits until all pools are full without alerts, except one pool with an active alert. */
const settled = (but) =>
  until("the pools are full", async () => {
    const { environments, poolAlerts } = await server.ask("{ environments { id pool { size idle } } poolAlerts { environmentId } }");
    return environments.every(({ id, pool }) => id === but || pool.idle >= pool.size) && poolAlerts.map(({ environmentId }) => environmentId).join() === (but ?? "");
  });

test("a drain is started and ended; meanwhile every page shows it, and no pool is a problem", async () => {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "shell", waitFor: 60}) { runner { id } } }`);
  await settled();
  const page = await visit("/scheduling?environment=shell"); // the former address
  await page.waitForURL("**/operations?environment=shell");
  await page.waitForSelector(".pool-list .tag >> text=Ready");
  await page.click("role=button[name='Drain …']");
  await page.waitForSelector("dialog >> text=Idle runners stop immediately");
  await page.click("role=button[name='Drain the cluster']");
  const progress = page.locator(".card", { has: page.locator("h2:text-is('Drain')") });
  await until("only what is claimed is left", async () => (await progress.locator("dt").allTextContents()).join() === "Claimed");
  await progress.locator("text=1 runner").waitFor(); // only now: one that is stopping has this text, too

  const client = await made({ name: "client", role: "CLIENT", tenant: "default" });
  for (const [address, who] of [["/", token], ["/runners", token], ["/playground", client], ["/", client]]) {
    const other = await visit(address, { as: who });
    await other.waitForSelector(".maintenance >> text=The cluster is draining");
    assert.equal(await other.locator(".maintenance a").count(), who === token ? 1 : 0);
    await other.context().close();
  }
  const overview = await visit("/");
  await overview.waitForSelector(".maintenance");
  await overview.waitForSelector(".pool-row >> text=Drained");
  await overview.locator(".pool-row", { has: overview.locator("a:text-is('shell')") }).locator(".tag >> text=Draining").waitFor(); // claimed runners stay
  await overview.waitForSelector("text=Healthy");
  for (const one of [page, overview]) {
    await one.waitForSelector("text=Drained");
    // Earlier problems stay in the history of alerts, and a failed allocation in a notice.
    const cards = one.locator(".card").filter({ hasNot: one.locator("h2:text-is('Alerts')") });
    assert.equal(await cards.locator("text=/Not filling|Too few|Degraded|being drained/").count(), 0);
    assert.equal(await one.locator(".notice.warn, .notice.bad").filter({ hasNotText: /^Runner .* (was lost|failed)/ }).count(), 0);
  }
  assert.deepEqual((await server.ask("{ poolAlerts { environmentId } }")).poolAlerts, []);

  await server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: claimRunner.runner.id });
  await progress.locator("text=No runner is left").waitFor();
  await page.click("role=button[name='End the drain']");
  await progress.waitFor({ state: "detached" });
  await page.waitForSelector(".pool-list .tag >> text=Ready");
  for (const one of [page, overview]) await one.waitForSelector(".maintenance", { state: "detached" });
  await overview.waitForSelector(".pool-row >> text=Ready");
});

test("of 46 environments the failing one is in the first viewport, and the search finds others", async () => {
  const { environments } = await server.ask("{ environments { id } }");
  for (let n = environments.length + 1; n < 46; n++) {
    await server.ask(`mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, { in: { id: `course-${n}`, poolSize: 0 } });
  }
  await server.ask(`mutation { putEnvironment(input: {id: "zz-failing", poolSize: 1, resources: {memoryMiB: 900000}}) { created } }`);
  await settled("zz-failing"); // another pool's alert could be listed first
  for (const [address, row] of [["/operations", ".pool-list > li"], ["/", ".pool-row"]]) {
    const page = await visit(address);
    const failing = page.locator(row, { hasText: "zz-failing" }).first();
    await failing.locator("text=Too few").first().waitFor();
    await page.waitForSelector("text=/^(CPU|Memory) allocated$/ >> nth=0");
    const box = await failing.boundingBox();
    assert.ok(box.y + box.height <= 800, `${address}: it ends at ${box.y + box.height} px`);
    await failing.locator("text=memory exhausted").waitFor();
    await page.fill("[aria-label=\"Part of an environment's id\"]", "COURSE-1");
    await page.waitForURL("**?search=COURSE-1");
    await until("only those are shown", async () => (await page.locator(row, { hasText: "zz-failing" }).count()) === (address === "/" ? 0 : 1)); // its alert stays listed
    await page.locator(row, { hasText: "course-10" }).first().waitFor();
    await page.reload();
    await page.locator(row, { hasText: "course-10" }).first().waitFor();
  }
  const all = await visit("/operations");
  await all.click("text=Show all 46 pools");
  await until("all are shown", async () => (await all.locator("[aria-label='Pools, those with a problem first'] > li").count()) === 46);
});

test("alerts are active and then in the history, with the times of raise and resolve", async () => {
  const page = await visit("/operations");
  const alerts = page.locator(".card", { has: page.locator("h2:text-is('Alerts')") });
  await alerts.locator("li", { hasText: "zz-failing" }).locator(".tag >> text=Active").waitFor();
  await server.ask(`mutation { deleteEnvironment(input: {id: "zz-failing"}) { deleted } }`);
  const past = alerts.locator("li", { hasText: "zz-failing" });
  await past.locator(".tag >> text=Resolved").waitFor();
  await past.locator("text=the environment was deleted").waitFor();
  await past.locator(".tag >> text=Raised").waitFor();
  assert.equal(await past.locator(".tag >> text=Active").count(), 0);
});

test("all pages show the same allocated, allocatable and free resources", async () => {
  await server.ask(`mutation { putEnvironment(input: {id: "large", poolSize: 1, resources: {memoryMiB: 900000}}) { created } }`);
  await until("it waits for room", async () => (await server.ask(`{ cluster { evaluations(status: [BLOCKED]) { totalCount } } }`)).cluster.evaluations.totalCount === 1);
  const { cluster } = await server.ask(`{ cluster { capacity { memoryMiBPromisable memoryMiBUsed } evaluations(status: [BLOCKED]) { nodes { shortages { dimension free capacity } } } } }`);
  const [memory] = cluster.evaluations.nodes[0].shortages.filter(({ dimension }) => dimension === "MEMORY");
  assert.equal(memory.capacity, cluster.capacity.memoryMiBPromisable);
  const both = await Promise.all(["/", "/operations"].map((address) => visit(address)));
  await both[1].waitForSelector(`td >> text=/needed, .* free .of .* allocatable/`);
  await until("both pages show the same figure", async () => {
    const [one, other] = await Promise.all(both.map((page) => page.locator(".meter", { hasText: "Memory allocated" }).locator(".num").textContent()));
    return / of .* free/.test(one) && one === other;
  });
  await server.ask(`mutation { deleteEnvironment(input: {id: "large"}) { deleted } }`);
});

test("the overview counts running and failed executions and waiting claims, for each tenant its own", async () => {
  await server.ask(`mutation { putTenant(input: {id: "physics"}) { created } }`);
  const theirs = await made({ name: "physics", role: "OBSERVER", tenant: "physics" });
  const running = await server.run("sleep 1000");
  await server.ask(`mutation { putEnvironment(input: {id: "large", poolSize: 0, resources: {memoryMiB: 900000}}) { created } }`);
  server.begin(`mutation { claimRunner(input: {environmentId: "large", waitFor: 3600}) { runner { id } } }`); // it fails as the environment goes
  const page = await visit("/");
  const figure = (of, name) => of.locator(".summary > div", { hasText: name }).locator(".big");
  const shows = (of, name, text) => until(`${name}: ${text}`, async () => (await figure(of, name).textContent()) === text);
  await shows(page, "Executions running", "1");
  await shows(page, "Claims waiting", "1");
  await until("a failure of the last minute is counted", async () => {
    if (/^[1-9]\d*$/.test(await figure(page, "Failures a minute").textContent())) return true;
    await server.end(await server.run("exit 3"));
    return false;
  });
  const own = await visit("/", { as: theirs });
  await own.waitForSelector(".server-version >> text=/Rockpool ./");
  await own.waitForSelector("text=Healthy");
  for (const name of ["Executions running", "Failures a minute", "Claims waiting"]) await shows(own, name, "0");
  await server.ask(`mutation($id: ID!) { cancelExecution(id: $id) { execution { id } } }`, { id: running });
  await shows(page, "Executions running", "0");
  await server.ask(`mutation { deleteEnvironment(input: {id: "large"}) { deleted } }`);
  await shows(page, "Claims waiting", "0");
});

test("axe finds nothing on the page, drained and not", async () => {
  for (const colorScheme of ["light", "dark"]) {
    const page = await visit("/operations", { colorScheme, bypassCSP: true });
    for (const draining of [false, true]) {
      await server.ask(`mutation($on: Boolean!) { drainCluster(input: {draining: $on}) { cluster { kind } } }`, { on: draining });
      await page.waitForSelector(draining ? ".maintenance" : ".pool-list .tag >> text=Ready");
      assert.deepEqual(await judge(page, `Operations, ${colorScheme}${draining ? ", drained" : ""}`), []);
    }
  }
});
