// Every page at the width of a phone, 390 px.
import assert from "node:assert/strict";
import { after, before } from "node:test";
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

/**
 * Returns layout errors: text squeezed to one word a line, elements wider than the screen, and several primary
 * actions.
 */
function squeezed() {
  const least = 12; // characters a line, where there are three lines or more
  const wrong = [];
  const inline = (element) => ["inline", "contents"].includes(getComputedStyle(element).display);
  const blocks = new Map(); // the text of each, without what its own blocks have
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    let block = node.parentElement;
    if (node.data.trim() === "" || block.closest(".hidden-text, .cm-editor, .xterm, select, script, noscript, [hidden], [inert], dialog:not([open])")) continue;
    while (inline(block)) block = block.parentElement;
    blocks.set(block, [...(blocks.get(block) ?? []), node]);
  }
  for (const [block, nodes] of blocks) {
    const lines = new Map(); // how wide each is, by its position
    for (const node of nodes) {
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const rect of range.getClientRects()) if (rect.width > 0) lines.set(Math.round(rect.bottom / 4), 1);
    }
    const text = nodes.map((node) => node.data.trim()).join(" ");
    const breaks = block.querySelectorAll("br").length;
    if (lines.size - breaks >= 3 && text.length / lines.size < least) wrong.push(`${lines.size} lines in ${block.clientWidth} px: ${text.slice(0, 80)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    const widest = [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".table-scroll, .list-scroll, .tabs, pre"));
    wrong.push(`the page is ${document.documentElement.scrollWidth} px wide: ${widest.slice(0, 3).map((element) => element.className || element.tagName)}`);
  }
  const primary = [...document.querySelectorAll("main .button.primary")].filter((button) => button.checkVisibility());
  if (primary.length > 1) wrong.push(`${primary.length} primary actions: ${primary.map((button) => button.textContent)}`);
  return wrong;
}

test("at 390 px no page scrolls sideways or squeezes text to one word a line", async () => {
  const wrong = [];
  for (const { name, address, ready } of pages) {
    const page = await open(browser, { viewport: { width: 390, height: 844 } });
    await page.goto(server.url + address);
    await page.waitForSelector(ready);
    if (process.env.MOBILE_PICTURES) await page.screenshot({ path: `${process.env.MOBILE_PICTURES}/${name}.png`, fullPage: true });
    wrong.push(...(await page.evaluate(squeezed)).map((what) => `${name}: ${what}`));
    assert.deepEqual(page.mistakes, [], name);
    await page.context().close();
  }
  assert.deepEqual(wrong, []);
});

test("the check finds a squeezed column, a too wide page and a second primary action", async () => {
  const page = await open(browser, { viewport: { width: 390, height: 844 } });
  await page.goto(`${server.url}/access/you`);
  await page.waitForSelector("h2:text-is('Caller')");
  assert.deepEqual(await page.evaluate(squeezed), []);
  await page.evaluate(() => {
    const add = (tag, text, more) => document.querySelector("main").append(Object.assign(document.createElement(tag), { textContent: text }, more));
    add("div", "879 GiB of memory wanted, 185 GiB free", { style: "width: 4rem" });
    add("div", "wide", { style: "width: 60rem" });
    for (let n = 0; n < 2; n++) add("button", "Do it", { className: "button primary" });
  });
  const found = await page.evaluate(squeezed);
  assert.equal(found.length, 3, found.join("\n"));
  for (const [n, what] of [/lines in 60 px: 879 GiB/, /^the page is \d+ px wide/, /^2 primary actions/].entries()) assert.match(found[n], what);
  await page.context().close();
});
