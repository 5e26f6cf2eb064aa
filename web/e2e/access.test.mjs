// Every page, light and dark, wide and narrow, by axe's rules.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { launch, open } from "./browser.mjs";
import { sample } from "./sample.mjs";
import { Server } from "./server.mjs";

let server;
let browser;
let pages;
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

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
      // axe is a script of ours, not of the page, whose policy would refuse it.
      const page = await open(browser, { colorScheme, viewport: { width, height: 800 }, bypassCSP: true });
      const found = [];
      for (const { name, address, ready } of pages) {
        await page.goto(server.url + address);
        await page.waitForSelector(ready);
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() =>
          window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }),
        );
        for (const violation of violations) found.push(`${name}: ${violation.id} (${violation.impact}): ${violation.nodes.map((node) => `${node.html.slice(0, 150)} ${node.any[0]?.message ?? ""}`).join(" | ")}`);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        if (over > 0) found.push(`${name} is ${over} px too wide for ${width} px`);
      }
      assert.deepEqual(found, []);
      assert.deepEqual(page.mistakes, []);
      await page.context().close();
    });
  }
}
