// Executions and runners are found by label, text, outcome and time, and ended together by checkboxes.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { judge } from "./axe.mjs";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

const first = "the-first-token-of-this-test-that-is-long-enough";
let server;
let browser;
/** Tokens and a grant, by role. */
const tokens = { admin: first };
/** Runners, by the user in their labels. */
const runners = {};
let grant;

const label = (name, value) => ({ name, value });
const claim = async (user, holder = null) =>
  (await server.ask(`mutation($in: ClaimRunnerInput!) { claimRunner(input: $in) { runner { id } } }`, { in: { environmentId: "shell", waitFor: 60, inactivityTimeout: 3600, holder, labels: [label("user", user), label("course", "algorithms")] } })).claimRunner.runner.id;
const start = async (user, shell, labels = []) =>
  (await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, { in: { runnerId: runners[user], shell, timeLimit: 600, labels } })).startExecution.execution.id;
const outcome = async (id) => (await server.ask(`query($id: ID!) { execution(id: $id) { outcome } }`, { id })).execution.outcome;

before(async () => {
  [server, browser] = await Promise.all([Server.start({ token: first }), launch()]);
  for (const role of ["CLIENT", "OBSERVER"]) {
    const { createToken } = await server.ask(`mutation($in: CreateTokenInput!) { createToken(input: $in) { secret } }`, { in: { name: role, role, tenant: "default" } });
    tokens[role] = createToken.secret;
  }
  for (const user of ["ada", "bob", "eve"]) runners[user] = await claim(user);
  await server.end(await start("ada", "echo hello from the first"));
  await server.end(await start("ada", "exit 3", [label("task", "4")]));
  await server.end(await start("bob", "exit 4"));
  await server.end(await start("eve", "echo 'for ada'"));
  const id = await start("bob", "exit 0");
  await server.end(id);
  const { createGrant } = await server.ask(`mutation($in: CreateGrantInput!) { createGrant(input: $in) { token } }`, { in: { executionId: id, rights: ["WATCH"] } });
  grant = createGrant.token;
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

async function visit(who, address, options = {}) {
  const page = await open(browser, options);
  await page.addInitScript((token) => sessionStorage.setItem("rockpool.token", token), tokens[who]);
  await page.goto(server.url + address);
  return page;
}
async function leave(page) {
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
}

/** Waits until the table has these commands, from above. */
const shows = (page, ...wanted) =>
  until(`the table shows ${wanted.join(", ")}`, async () => JSON.stringify(await page.locator(".table-row a.mono:not(.chip)").allTextContents()) === JSON.stringify(wanted));

test("a search for ada finds executions by labels and commands", async () => {
  const page = await visit("OBSERVER", "/executions");
  await shows(page, "exit 0", "echo 'for ada'", "exit 4", "exit 3", "echo hello from the first");
  const search = page.locator("[aria-label='Text in a label or a command']");
  await search.fill("ada");
  await shows(page, "echo 'for ada'", "exit 3", "echo hello from the first");
  await page.waitForURL("**/executions?text=ada");
  await search.fill("USER=Ada");
  await shows(page, "exit 3", "echo hello from the first");
  await page.click("role=button[name='Failed']");
  await shows(page, "exit 3");
  const began = page.locator(".table-row time");
  assert.match(await began.textContent(), /^\d+ \w+, \d\d:\d\d:\d\d$/);
  assert.equal(await began.getAttribute("title"), await began.getAttribute("datetime"));

  // The address contains all filters.
  await page.reload();
  await shows(page, "exit 3");
  assert.equal(await page.getAttribute("role=button[name='Failed']", "aria-pressed"), "true");
  await page.goBack();
  await shows(page, "exit 3", "echo hello from the first");
  await page.goForward();
  await shows(page, "exit 3");
  await search.fill("nobody");
  await page.waitForSelector(".empty >> text=No matches for these filters: failed, text “nobody”.");
  await page.click("text=Clear the filters");
  await shows(page, "exit 0", "echo 'for ada'", "exit 4", "exit 3", "echo hello from the first");
  assert.equal(new URL(page.url()).search, "");
  await leave(page);
});

test("labels, outcome, time and environment filter executions", async () => {
  const page = await visit("OBSERVER", "/executions");
  await page.locator(".chip >> text=user=bob").first().click();
  await shows(page, "exit 0", "exit 4");
  await page.waitForURL("**/executions?label=user%3Dbob");
  await page.selectOption("role=combobox[name='Outcome']", "succeeded");
  await shows(page, "exit 0");
  await page.goBack();
  await shows(page, "exit 0", "exit 4");
  await page.fill("[aria-label^='Label, as name=value']", "task=4");
  await page.press("[aria-label^='Label, as name=value']", "Enter");
  await page.waitForSelector(".empty >> text=label user=bob, label task=4");
  await page.click("role=button[name='Only label user=bob: without this label']");
  await shows(page, "exit 3");
  await page.click("role=button[name='Only label task=4: without this label']");

  for (const range of ["1h", "1d", "7d"]) {
    await page.selectOption("role=combobox[name='Time']", range);
    await page.waitForURL(`**/executions?since=${range}`);
    await page.waitForSelector(".table-foot >> text=/^5 executions$/");
  }
  await page.selectOption("role=combobox[name='Time']", "between");
  await page.fill("label:has-text('to') input[type=datetime-local]", "2020-01-01T10:00");
  await page.waitForSelector(".empty >> text=/No matches for these filters: to .*2020/");
  await page.reload();
  await page.waitForSelector(".empty >> text=/No matches for these filters: to .*2020/");
  assert.equal(await page.inputValue("label:has-text('to') input[type=datetime-local]"), "2020-01-01T10:00");
  await page.fill("label:has-text('to') input[type=datetime-local]", "");
  await page.fill("label:has-text('From') input[type=datetime-local]", "2020-01-01T10:00");
  await page.waitForSelector(".table-foot >> text=/^5 executions$/");
  await page.selectOption("label:has-text('Environment') select", "shell");
  await page.waitForURL("**environment=shell**");
  await page.waitForSelector(".table-foot >> text=/^5 executions$/");

  // Invalid filters are ignored and reported.
  await page.goto(`${server.url}/executions?state=ASLEEP&from=yesterday&label=%3D&label=task%3D4`);
  await page.waitForSelector("[role=status] >> text=/which are ignored: state=ASLEEP .*label==.*from=yesterday/");
  await shows(page, "exit 3");
  await page.click("text=Remove from the address");
  await page.waitForURL("**/executions?label=task%3D4");
  await shows(page, "exit 3");

  // An execution's labels link to other executions with them.
  await page.click("a.mono:has-text('exit 3')");
  await page.click("dd .chip >> text=user=ada");
  await shows(page, "exit 3", "echo hello from the first");
  await leave(page);
});

test("running executions are selected by checkboxes, also by keyboard, and cancelled together", async () => {
  const ids = [];
  for (const [user, n] of [["ada", 1], ["ada", 2], ["bob", 3], ["eve", 4]]) ids.push(await start(user, `sleep ${1000 + n}`));
  const page = await visit("CLIENT", "/executions?state=RUNNING");
  await shows(page, "sleep 1004", "sleep 1003", "sleep 1002", "sleep 1001");
  await page.check("[aria-label='Select all loaded rows']");
  await page.waitForSelector(".table-foot >> text=4 selected");
  await page.click(".table-foot >> role=button[name='Clear']");
  assert.equal(await page.isChecked("[aria-label='Select all loaded rows']"), false);
  await page.click("[aria-label='Select sleep 1003']");
  await page.focus("[aria-label='Select sleep 1001']");
  await page.keyboard.press("Shift+Space");
  await page.waitForSelector(".table-foot >> text=3 selected");
  assert.equal(await page.isChecked("[aria-label='Select sleep 1002']"), true);

  // New executions don't change the selection.
  const late = await start("eve", "sleep 1005");
  await shows(page, "sleep 1005", "sleep 1004", "sleep 1003", "sleep 1002", "sleep 1001");
  await page.waitForSelector(".table-foot >> text=3 selected");
  assert.equal(await page.isChecked("[aria-label='Select sleep 1005']"), false);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Select sleep 1001");
  assert.deepEqual(await judge(await bare(page), "chosen"), []);

  // One of them ends before the confirmation.
  await page.click("role=button[name='Cancel 3 …']");
  await page.waitForSelector("dialog >> text=Cancel 3 executions?");
  await page.waitForSelector("dialog li >> text=sleep 1002");
  assert.equal(await page.locator("dialog li").count(), 3);
  await server.ask(`mutation($in: SignalExecutionInput!) { signalExecution(input: $in) { execution { state } } }`, { in: { executionId: ids[0], signal: "KILL" } });
  await server.end(ids[0]);
  await page.click("dialog >> role=button[name='Cancel 3']");
  await page.waitForSelector("dialog >> text=2 cancelled, 1 had already ended.");
  await page.click("dialog >> role=button[name='Close']");
  await shows(page, "sleep 1005", "sleep 1004");
  assert.deepEqual(await Promise.all(ids.map(outcome)), ["SIGNALED", "CANCELLED", "CANCELLED", null]);

  // A failure shows its reason, and the others are cancelled.
  await page.check("[aria-label='Select all loaded rows']");
  await page.click("role=button[name='Cancel 2 …']");
  await page.route("**/graphql", (route) => {
    const body = route.request().postDataJSON();
    if (!body?.query.includes("cancelExecution") || body.variables.id !== late) return route.continue();
    return route.fulfill({ json: { data: null, errors: [{ message: "the server is busy", extensions: { code: "UNAVAILABLE" } }] } });
  });
  await page.click("dialog >> role=button[name='Cancel 2']");
  await page.waitForSelector("dialog >> text=1 cancelled, 1 failed: the server is busy.");
  await page.click("dialog >> role=button[name='Close']");
  await shows(page, "sleep 1005");
  await page.unroute("**/graphql");
  await server.ask(`mutation($id: ID!) { cancelExecution(id: $id) { execution { state } } }`, { id: late });
  await leave(page);
});

/** Opens the same page without its policy, for axe. */
async function bare(page) {
  const other = await visit("CLIENT", new URL(page.url()).pathname + new URL(page.url()).search, { bypassCSP: true });
  await other.check("[aria-label='Select all loaded rows']");
  await other.waitForSelector(".table-foot >> text=selected");
  return other;
}

test("runners are found by holder and labels and released together, and the address keeps the filters", async () => {
  runners.dan = await claim("dan", "dan/7");
  const page = await visit("CLIENT", "/runners?label=course%3Dalgorithms&state=CLAIMED");
  const rows = page.locator(".table-row");
  await until("four runners are held", async () => (await rows.count()) === 4);
  await page.fill("[aria-label='Part of a holder or a label']", "D");
  await until("two have a d", async () => (await rows.count()) === 2);
  await page.waitForURL("**held-by=D**");
  await page.reload();
  await until("two have a d", async () => (await rows.count()) === 2);
  assert.deepEqual((await rows.locator(".chip:not(:has-text('course'))").allTextContents()).sort(), ["dan/7", "user=ada", "user=dan"]);
  await page.check("[aria-label='Select all loaded rows']");
  await page.click("role=button[name='Release 2 …']");
  await page.waitForSelector("dialog >> text=Release 2 runners?");
  await page.waitForSelector("dialog li >> text=/dan\\/7 +user=dan/");
  await page.click("dialog >> role=button[name='Release 2']");
  await page.waitForSelector("dialog >> text=2 released.");
  await page.click("dialog >> role=button[name='Close']");
  await page.waitForSelector(".empty >> text=No matches for these filters: claimed, label course=algorithms, held by “D”.");
  await page.click("text=Clear the filters");
  await rows.locator(".chip >> text=user=bob").click();
  await until("one is bob's", async () => (await rows.count()) === 1);
  await leave(page);
});

test("callers without access have no checkboxes, and a grant shows no table", async () => {
  await server.end(await start("bob", "true"));
  const running = await start("bob", "sleep 1000");
  for (const [address, text] of [["/executions", "sleep 1000"], ["/runners", "user=bob"]]) {
    const page = await visit("OBSERVER", address);
    await page.waitForSelector(`.table-row >> text=${text}`);
    assert.equal(await page.locator("[type=checkbox]").count(), 0, address);
    assert.equal(await page.locator(".table-row button.danger").count(), 0, address);
    await leave(page);
    tokens.grant = grant;
    const theirs = await visit("grant", address);
    await theirs.waitForSelector(".notice >> text=/Ask an administrator/");
    assert.equal(await theirs.locator("[type=checkbox], .table-row").count(), 0, address);
    await theirs.context().close();
  }
  await server.ask(`mutation($id: ID!) { cancelExecution(id: $id) { execution { state } } }`, { id: running });
});

test("at 390 px the tables are cards with the same actions", async () => {
  const running = await start("eve", "sleep 1000");
  for (const [address, text, choose] of [["/executions", "sleep 1000", "Select sleep 1000"], ["/runners?held-by=eve", "user=eve", "Select runner"]]) {
    const page = await visit("CLIENT", address, { viewport: { width: 390, height: 844 }, bypassCSP: true });
    const row = page.locator(".table.cards .table-row", { hasText: text }).first();
    await row.waitFor();
    assert.deepEqual(await judge(page, address), []);
    // The checkbox, the labels, the time and the actions are visible without scrolling sideways.
    for (const part of [row.locator("[type=checkbox]"), row.locator("time"), row.locator(".chip").first(), row.locator(".acts button.danger")]) {
      const box = await part.boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= 390, `${await part.evaluate((it) => it.outerHTML)}: ${JSON.stringify(box)}`);
    }
    assert.ok(await page.locator(".table-scroll").evaluate((it) => it.scrollWidth <= it.clientWidth), address);
    await page.locator(`[aria-label^='${choose}']`).first().check();
    await page.waitForSelector(".table-foot >> text=1 selected");
    if (process.env.MOBILE_PICTURES) await page.screenshot({ path: `${process.env.MOBILE_PICTURES}/find${address.slice(0, 8).replace("/", "-")}.png`, fullPage: true });
    await leave(page);
  }
  await server.ask(`mutation($id: ID!) { cancelExecution(id: $id) { execution { state } } }`, { id: running });
});
