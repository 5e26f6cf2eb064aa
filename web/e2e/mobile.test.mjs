// Every page on a telephone: 390 px wide.
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

/** What a page does wrong at its width: text that is squeezed into a column of a word a line, and what is wider than the screen. */
function squeezed() {
  const least = 8; // characters
  const wrong = [];
  const hidden = (element) => element.closest(".hidden-text, .cm-editor, .screen, svg, [hidden], [inert]");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.trim();
    const element = node.parentElement;
    if (text.length <= least || hidden(element)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = new Set([...range.getClientRects()].filter((rect) => rect.width > 0).map((rect) => Math.round(rect.top)));
    if (lines.size < 2) continue;
    let block = element;
    while (["inline", "contents"].includes(getComputedStyle(block).display)) block = block.parentElement;
    const style = getComputedStyle(block);
    const room = block.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const wide = parseFloat(style.fontSize) * 0.5 * least;
    if (room < wide || lines.size > text.split(/\s+/).length - 1 && lines.size > 2) wrong.push(`${lines.size} lines in ${Math.round(room)} px: ${text.slice(0, 60)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth) {
    const widest = [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(".table-scroll, .list-scroll, .tabs, pre"));
    wrong.push(`the page is ${document.documentElement.scrollWidth} px wide: ${widest.slice(0, 3).map((element) => element.className || element.tagName)}`);
  }
  return wrong;
}

test("no page scrolls sideways at 390 px, and none has a column of one word a line", async () => {
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
