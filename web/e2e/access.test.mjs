// Every page, light and dark, wide and narrow, by axe's rules.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { judge } from "./axe.mjs";
import { launch, open, test } from "./browser.mjs";
import { sample } from "./sample.mjs";
import { Server } from "./server.mjs";

let server;
let browser;
let pages;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
  pages = await sample(server);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1280, 360]) {
    test(`axe finds nothing, ${colorScheme}, ${width} px wide`, async () => {
      // axe is an injected script, which the page's policy would refuse.
      const page = await open(browser, { colorScheme, viewport: { width, height: 800 }, bypassCSP: true });
      const found = [];
      for (const { name, address, ready } of pages) {
        await page.goto(server.url + address);
        await page.waitForSelector(ready);
        found.push(...(await judge(page, name)));
        const shift = await page.evaluate(
          () =>
            new Promise((resolve) => {
              let sum = 0;
              new PerformanceObserver((list) => list.getEntries().forEach((entry) => (sum += entry.value))).observe({ type: "layout-shift", buffered: true });
              setTimeout(() => resolve(sum)); // what was buffered comes before
            }),
        );
        if (shift > 0.1) found.push(`${name} shifts by ${shift.toFixed(2)} while it loads`);
      }
      assert.deepEqual(found, []);
      assert.deepEqual(page.mistakes, []);
      await page.context().close();
    });
  }
}

test("axe finds nothing in dialogs", async () => {
  const page = await open(browser, { viewport: { width: 360, height: 800 }, bypassCSP: true });
  const execution = pages.find(({ name }) => name === "execution").address;
  const found = [];
  for (const [address, button, then] of [
    ["/access/tokens", "New token"],
    ["/access/tenants", "New tenant"],
    ["/access/tenants", "Change course-1"],
    ["/access/tenants", "Delete course-1"],
    [execution, "Share …"],
    [execution, "Share …", "Create the link"],
  ]) {
    await page.goto(server.url + address);
    await page.click(`role=button[name='${button}']`);
    await page.waitForSelector("dialog[open] h2");
    if (then) {
      await page.click(`role=button[name='${then}']`);
      await page.waitForSelector("dialog >> text=The link");
    }
    found.push(...(await judge(page, `${address}, ${then ?? button}`)));
  }
  assert.deepEqual(found, []);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("a view that can't load shows the error, and loads after a retry", async () => {
  const page = await open(browser, { viewport: { width: 360, height: 800 }, bypassCSP: true });
  const found = [];
  for (const { name, address, ready } of pages.filter((one) => !["new-environment", "replay"].includes(one.name))) {
    await page.route("**/graphql", (route) => route.abort());
    await page.goto(server.url + address);
    await page.waitForSelector("[role=alert] >> text=The server doesn't respond");
    found.push(...(await judge(page, `${name}, failed`)));
    const again = page.locator("role=button[name='Try again']");
    if ((await again.count()) === 0) found.push(`${name} has no way on`);
    await page.unroute("**/graphql");
    await again.evaluateAll((buttons) => buttons[0]?.click()); // some pages retry automatically and are faster
    await page.waitForSelector(ready);
  }
  assert.deepEqual(found, []);
  await page.context().close();
});

test("an empty view says what to do", async () => {
  const page = await open(browser, { viewport: { width: 360, height: 800 }, bypassCSP: true, colorScheme: "dark" });
  const found = [];
  const { environments } = await server.ask(`{ environments { id } }`);
  for (const { id } of environments) await server.ask(`mutation($in: DeleteEnvironmentInput!) { deleteEnvironment(input: $in) { deleted } }`, { in: { id, endClaimed: true } });
  const empty = {
    "/": "No environments yet",
    "/environments/python": "Environment not found",
    "/runners": "No runners yet",
    "/executions?environment=nonesuch": "No matching executions",
    "/executions/nonesuch": "Execution not found",
    "/terminal/nonesuch": "Execution not found",
    "/terminal": "No environments yet",
    "/playground": "No environments yet",
  };
  for (const [address, title] of Object.entries(empty)) {
    await page.goto(server.url + address);
    await page.waitForSelector(`.empty >> text=${title}`);
    if ((await page.locator(".empty a").count()) === 0) found.push(`${address} has no way on`);
    found.push(...(await judge(page, address)));
  }
  assert.deepEqual(found, []);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});
