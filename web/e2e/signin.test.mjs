// A person signs in at a real provider, uses the dashboard, and signs out.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { freeAddress, startDex } from "./dex.mjs";
import { Server } from "./server.mjs";

let dex;
let server;
let browser;

before(async () => {
  const listen = await freeAddress();
  [dex, browser] = await Promise.all([startDex(listen), launch()]);
  server = await Server.start({ token: "a-secret-of-this-test-that-is-long-enough", args: dex.args, listen });
});
after(async () => {
  await browser?.close();
  await server?.stop();
  await dex?.stop();
});

const wanted = "dialog >> text=This server requires a token";

test("a person signs in from the dialog, comes back to the same page, and signs out", async () => {
  const page = await open(browser);
  await page.goto(`${server.url}/executions?environment=shell`);
  await page.waitForSelector(wanted);
  await page.fill("dialog label:text-is('Token') ~ input", "a wrong one");
  await Promise.all([page.waitForEvent("load"), page.click("role=button[name='Use the token']")]);
  await page.waitForSelector("dialog >> text=The server rejected this token");
  await page.click("dialog >> role=link[name='Sign in']");
  await page.fill("#login", "admin@example.com");
  await page.fill("#password", "password");
  await page.click("#submit-login");
  await page.waitForURL(`${server.url}/executions?environment=shell`);
  await page.waitForSelector("text=No matching executions");
  assert.equal(await page.locator("dialog[open]").count(), 0);
  await page.goto(`${server.url}/access/you`);
  await page.waitForSelector("dd >> text=Sign-in with this browser");
  await page.waitForSelector("dd >> text=ADMIN");
  const explorer = await page.context().newPage();
  await explorer.goto(`${server.url}/graphiql`);
  await explorer.waitForSelector(".graphiql-execute-button[aria-haspopup=menu]"); // it has read the first tab
  await explorer.click(".graphiql-tab-button >> text=Environments");
  await explorer.waitForSelector(".graphiql-execute-button:not([aria-haspopup])");
  assert.equal(await explorer.locator("dialog[open]").count(), 0);

  await Promise.all([page.waitForEvent("load"), page.click("role=button[name='Sign out']")]);
  await page.waitForSelector(wanted);
  await page.goto(`${server.url}/runners`);
  await page.waitForSelector(wanted);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("role=button[name='Sign out']").count(), 0);
  const link = page.locator(".side-foot >> role=link[name='Sign in']"); // outside of the dialog, too
  assert.equal(await link.getAttribute("href"), "/auth/login?return=%2Frunners");
  assert.deepEqual(page.mistakes.filter((text) => !/status of 401/.test(text)), []);
  await page.context().close();
});
