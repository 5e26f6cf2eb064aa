// A server that requires a token. Every tab without one asks for it. The token is in no address, and is kept only as
// long as the user chose.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { answers, launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { limit } from "./wait.mjs";

const token = "a-secret-of-this-test-that-is-long-enough";
let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start({ token }), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Tabs of one browser, and all addresses that they requested. */
async function visitor() {
  const first = await open(browser);
  const context = first.context();
  const asked = [];
  context.on("request", (request) => asked.push(request.url()));
  const tab = async (address, page) => {
    page ??= await context.newPage();
    page.setDefaultTimeout(limit);
    await page.goto(server.url + address);
    return page;
  };
  return { context, asked, tab, first };
}

async function give(page, text, { remember = false } = {}) {
  await page.fill("dialog label:text-is('Token') ~ input", text);
  if (remember) await page.check("dialog >> text=Remember it in this browser");
  await Promise.all([page.waitForEvent("load"), page.click("role=button[name='Use the token']")]);
}

const overview = ".pool-row >> text=shell";
const stored = (page) => page.evaluate(() => JSON.stringify(Object.entries(localStorage)));

test("each tab and GraphiQL ask for the token, and it is in no address", async () => {
  const { context, asked, tab, first } = await visitor();
  const page = await tab("/", first);
  await give(page, "a wrong one");
  await page.waitForSelector("dialog >> text=The server rejected this token");
  await give(page, token);
  await page.waitForSelector(overview);
  await page.reload();
  await page.waitForSelector(overview);
  assert.ok(!(await stored(page)).includes(token), "it is remembered, though nobody asked for that");

  const other = await tab("/runners");
  await other.waitForSelector("dialog >> text=This server requires a token");
  const explorer = await tab("/graphiql");
  await explorer.waitForSelector("dialog >> text=including GraphiQL");
  await give(explorer, token);
  await explorer.waitForSelector(".graphiql-execute-button[aria-haspopup=menu]"); // it has read the first tab, and will not do so later
  await explorer.click(".graphiql-tab-button >> text=Environments");
  await explorer.waitForSelector(".graphiql-execute-button:not([aria-haspopup])");
  await answers(explorer, '"version"');
  assert.ok(!(await stored(explorer)).includes(token), "GraphiQL remembers it");
  assert.ok(asked.length > 10);
  assert.deepEqual(asked.filter((address) => address.includes(token)), []);
  await context.close();
});

test("a remembered token is used by all tabs until it is forgotten", async () => {
  const { context, tab, first } = await visitor();
  const page = await tab("/", first);
  await give(page, token, { remember: true });
  await page.waitForSelector(overview);
  const other = await tab("/");
  await other.waitForSelector(overview);
  await Promise.all([other.waitForEvent("load"), other.click("text=Forget the token")]);
  await other.waitForSelector("dialog >> text=This server requires a token");
  assert.ok(!(await stored(other)).includes(token));
  const third = await tab("/");
  await third.waitForSelector("dialog >> text=This server requires a token");
  await context.close();
});

test("behind the prompt no page shows an error; after closing it, the page says that it needs a token", async () => {
  const { context, tab, first } = await visitor();
  const addresses = ["/", "/environments/shell", "/new-environment", "/runners", "/executions", "/executions/none", "/executions/none/replay", "/batches", "/batches/none", "/playground", "/terminal", "/terminal/none", "/operations", "/access/tokens", "/access/tenants", "/access/queue", "/access/audit", "/access/you"];
  for (const address of addresses) {
    const answered = first.waitForResponse((response) => response.url().endsWith("/graphql") && response.status() === 401);
    const page = await tab(address, first);
    await answered;
    await page.waitForSelector("dialog >> text=This server requires a token");
    await page.waitForLoadState("networkidle");
    assert.deepEqual(await page.locator("main [role=alert], main .notice").allTextContents(), [], address);
    assert.equal(await page.locator("main h1").count(), 1, address);
  }
  await first.goto(`${server.url}/access/you`); // a page with one request
  await first.waitForSelector("dialog >> text=This server requires a token");
  await first.keyboard.press("Escape");
  await first.waitForSelector(".notice.warn >> text=This page needs a token");
  await first.click("text=Use another token");
  await first.waitForSelector("dialog[open]");
  await context.close();
});
