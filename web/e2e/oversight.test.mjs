// The queue, the tenants' quotas and the audit log, for the callers with access to them.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

const first = "the-first-token-of-this-test-that-is-long-enough";
let server;
let browser;
/** Tokens by name. */
const tokens = { admin: first };
/** Ends waiting claims. */
let leave;

before(async () => {
  [server, browser] = await Promise.all([Server.start({ token: first }), launch()]);
  await server.ask(`mutation { putTenant(input: {id: "physics", quotas: {runners: 1, waiting: 5}}) { created } }`);
  await server.ask(`mutation { putEnvironment(input: {id: "big", shared: true, poolSize: 0, resources: {memoryMiB: 900000}}) { created } }`); // no runner of it ever starts
  for (const [name, role, tenant] of [
    ["client", "CLIENT", "physics"],
    ["second", "CLIENT", "physics"],
    ["third", "CLIENT", "physics"],
    ["manager", "ADMIN", "physics"],
    ["observer", "OBSERVER", "default"],
  ]) {
    const { createToken } = await server.ask(`mutation($in: CreateTokenInput!) { createToken(input: $in) { secret } }`, { in: { name, role, tenant } });
    tokens[name] = createToken.secret;
  }
});
after(async () => {
  leave?.abort();
  await browser?.close();
  await server?.stop();
});

async function visit(who, address) {
  const page = await open(browser);
  await page.addInitScript((token) => sessionStorage.setItem("rockpool.token", token), tokens[who]);
  await page.goto(server.url + address);
  return page;
}

/** Sends a request with a token, and returns the response, also an error. */
async function ask(who, query, signal) {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${tokens[who]}` };
  const response = await fetch(`${server.url}/graphql`, { method: "POST", headers, body: JSON.stringify({ query }), signal });
  return response.json();
}

/** Claims a runner that never starts, until stop is aborted. */
async function waits(who, stop) {
  const waiting = async () => (await server.ask(`{ waitingClaims { totalCount } }`)).waitingClaims.totalCount;
  const before = await waiting();
  ask(who, `mutation { claimRunner(input: {environmentId: "big", waitFor: 3600}) { runner { id } } }`, stop.signal).catch(() => {});
  await until("the claim waits", async () => (await waiting()) === before + 1);
}

/** The position of a claim that has none. */
const none = "Unknown, or quota reached";

/** The rows of a table as text, once it has n rows. */
async function rows(page, n) {
  const all = page.locator(".table-row");
  await until(`there are ${n} rows`, async () => (await all.count()) === n);
  return (await all.all().then((each) => Promise.all(each.map((row) => row.locator("[role=cell]").allTextContents())))).map((cells) => cells.map((text) => text.trim()));
}

test("the queue shows waiting claims, to each caller those of its tenant", async () => {
  leave = new AbortController();
  await waits("client", leave);
  await waits("admin", leave); // for the tenant of the environment
  const last = new AbortController();
  await waits("client", last); // its tenant may hold one runner, and the first claim has that

  const page = await visit("admin", "/");
  await page.click(".pool-row >> text=2 claims waiting");
  await page.waitForURL("**/access/queue?environment=big");
  await page.waitForSelector("[role=columnheader] >> text=Tenant");
  const places = (all) => all.map((cells) => [cells[0], cells[1], cells[5]]);
  assert.deepEqual(places(await rows(page, 3)), [["big", "1", "physics"], ["big", "2", "default"], ["big", none, "physics"]]);
  await page.selectOption("label:has-text('Tenant') >> select", "physics");
  assert.deepEqual(places(await rows(page, 2)), [["big", "1", "physics"], ["big", none, "physics"]]);

  for (const [who, want] of [
    ["client", [["big", "1"], ["big", none]]],
    ["observer", [["big", "2"]]],
  ]) {
    const theirs = await visit(who, "/access/queue");
    assert.deepEqual((await rows(theirs, want.length)).map((cells) => cells.slice(0, 2)), want, who);
    await theirs.waitForSelector(".server-version >> text=/Rockpool ./"); // the caller is known
    await theirs.waitForSelector(".pending", { state: "detached" });
    assert.equal(await theirs.locator("[role=columnheader] >> text=Tenant").count(), 0, who);
    assert.deepEqual(await theirs.locator(".tabs a").allTextContents(), ["Tenants", "Queue", "You"], who);
    assert.deepEqual(theirs.mistakes, []);
    await theirs.context().close();
  }

  // The use of a quota is shown and updated.
  await page.click(".tabs >> text=Tenants");
  const card = page.locator(".card", { hasText: "physics" });
  await card.locator("dd >> text=0 of 1").waitFor(); // waiting claims hold no runner
  await card.locator("dd >> text=2 of 5").waitFor();
  last.abort();
  await card.locator("dd >> text=1 of 5").waitFor();
  await card.locator("dd >> text=1 of 5").click();
  await page.waitForURL("**/access/queue?tenant=physics");
  assert.deepEqual(places(await rows(page, 1)), [["big", "1", "physics"]]);
  leave.abort();
  await page.waitForSelector(".empty >> text=No waiting claims");
  const own = await visit("client", "/access/tenants");
  await own.locator("dd >> text=0 of 5").waitFor();
  assert.deepEqual(await own.locator(".card h2").allTextContents(), ["physics"]);
  assert.deepEqual([...page.mistakes, ...own.mistakes], []);
  await Promise.all([page, own].map((one) => one.context().close()));
});

test("an administrator reads the audit log by pages, and filters it by caller, action and object", async () => {
  for (let n = 0; n < 130; n++) await ask(["client", "second", "third"][n % 3], `mutation { cancelTicket(id: "none-${n}") { ticket { id } } }`); // of one token 50 failures are recorded
  const page = await visit("admin", "/access/audit");
  const newest = page.locator(".table-row").first();
  await newest.locator("text=none-129").waitFor();
  await newest.locator("text=TICKET_NOT_FOUND").waitFor();
  await newest.locator("text=physics").waitFor();
  await newest.locator("role=button[name='cancelTicket']").click();
  await page.waitForURL("**/access/audit?action=cancelTicket");
  await page.waitForSelector(".table-foot >> text=100 entries; scrolling loads more");
  await page.locator(".table-scroll").evaluate((scroll) => (scroll.scrollTop = scroll.scrollHeight));
  await page.waitForSelector(".table-foot >> text=/^130 entries$/");
  await page.locator(".table-scroll").evaluate((scroll) => (scroll.scrollTop = scroll.scrollHeight));
  await page.waitForSelector(".table-row >> text=none-0");

  // New entries appear, and clicks filter further.
  await ask("manager", `mutation { cancelTicket(id: "last") { ticket { id } } }`);
  await page.locator(".table-scroll").evaluate((scroll) => (scroll.scrollTop = 0));
  await newest.locator("text=ticket last").waitFor();
  await newest.locator("role=button[name='manager']").click();
  assert.equal((await rows(page, 1))[0][3], "ticket last");
  await page.click("text=Only caller");
  await page.waitForSelector(".table-foot >> text=100 entries");
  await page.fill("[aria-label=Action]", "");
  await page.waitForSelector(".table-row >> text=last");
  await page.selectOption("label:has-text('Tenant') >> select", "default");
  await page.waitForSelector(".table-row >> text=default");
  assert.equal(await page.locator(".table-row >> text=physics").count(), 0);

  const theirs = await visit("manager", "/access/audit");
  await theirs.waitForSelector(".table-row >> text=cancelTicket");
  await theirs.fill("[aria-label=Action]", "putTenant"); // of the whole server
  await theirs.waitForSelector(".empty >> text=No entry matches these filters");
  for (const who of ["client", "observer"]) {
    const refused = await visit(who, "/access/audit");
    await refused.waitForSelector(".empty >> text=This page needs the role ADMIN");
    assert.equal((await ask(who, `{ auditLog { nodes { id } } }`)).errors[0].extensions.code, "FORBIDDEN");
    await refused.context().close();
  }
  assert.deepEqual([...page.mistakes, ...theirs.mistakes], []);
  await Promise.all([page, theirs].map((one) => one.context().close()));
});
