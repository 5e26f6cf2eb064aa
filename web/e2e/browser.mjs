// Debian's Chromium, with checks that apply to every page.
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { test as run } from "node:test";
import { chromium } from "playwright-core";
import { logs } from "./server.mjs";
import { limit, until } from "./wait.mjs";

/** The open pages with their console messages. */
const opened = new Map();

/**
 * test is node's test. After a failure it stores screenshots, consoles and the server's log below
 * ROCKPOOL_ARTIFACTS.
 */
export function test(name, steps) {
  run(name, async (t) => {
    try {
      await steps(t);
    } catch (error) {
      await keep(name).catch((failure) => t.diagnostic(`nothing is kept: ${failure.message}`));
      throw error;
    }
  });
}

async function keep(name) {
  const root = process.env.ROCKPOOL_ARTIFACTS;
  if (!root) return;
  const to = path.join(root, name.replaceAll(/[^a-zA-Z0-9]+/g, "-"));
  await mkdir(to, { recursive: true });
  await writeFile(path.join(to, "server.log"), logs());
  let n = 0;
  for (const [page, said] of opened) {
    n++;
    await writeFile(path.join(to, `page-${n}.txt`), [page.url(), ...said, ""].join("\n"));
    await page.screenshot({ path: path.join(to, `page-${n}.png`), timeout: 10_000 });
  }
}

/** Chromium's headless shell. It needs half the processor time of the whole Chromium. CHROMIUM names another one. */
export const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium-headless-shell";

/** Starts the browser. */
export function launch() {
  // As root Chromium can't use its sandbox. It opens only our pages.
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** Opens a page that collects its mistakes: errors in the console, and requests that the policy refused. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(limit);
  const said = [];
  opened.set(page, said);
  page.on("close", () => opened.delete(page));
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.mistakes = [];
  page.on("pageerror", (error) => {
    said.push(`error: ${error.stack}`);
    page.mistakes.push(`${error.message}\n${error.stack}`);
  });
  page.on("console", (message) => {
    if (message.type() === "error" && !/ERR_CONNECTION_(REFUSED|RESET)|ERR_SOCKET_NOT_CONNECTED|ERR_EMPTY_RESPONSE|WebSocket connection to/.test(message.text())) page.mistakes.push(`${message.text()} (${message.location().url})`);
  });
  page.on("requestfailed", (request) => {
    if (request.failure()?.errorText === "csp") page.mistakes.push(`refused: ${request.url()}`);
  });
  return page;
}

/**
 * Scrolls a table down to the last of n rows, and returns a summary. It fails if too many rows are rendered, or if the
 * number of page requests is wrong. isNext recognises these by their cursors, since refreshes don't count.
 */
export async function scrollDown(page, n, step, isNext = () => true) {
  let pages = 0;
  const count = (request) => {
    const { first, after } = request.postDataJSON()?.variables ?? {};
    if (first === 500 && isNext(after)) pages++;
  };
  page.on("request", count);
  let steps = 0;
  let most = 0;
  for (let last = 0; last !== n + 1; steps++) {
    assert.ok(steps < n, `after ${steps} steps the last row is ${last} of ${n}`); // each step moves several rows
    await step();
    const rows = await page.evaluate(async () => {
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      return [...document.querySelectorAll(".table-row")].map((row) => Number(row.getAttribute("aria-rowindex")));
    });
    most = Math.max(most, rows.length);
    last = Math.max(...rows);
  }
  page.off("request", count);
  const told = `${steps} steps to the last of ${n} rows; ${most} rows were in the page at most; ${pages} pages were asked for`;
  assert.ok(most < 100, told);
  assert.ok(Math.abs(pages - n / 500) <= 2, told);
  return told;
}

/**
 * Runs GraphiQL's operation until its response contains a text. Until its editors have read an operation, which no
 * element shows, the button does nothing or runs the previous operation.
 */
export function answers(page, text) {
  return until(`GraphiQL shows ${text}`, async () => {
    if ((await page.textContent(".graphiql-response"))?.includes(text)) return true;
    await page.click(".graphiql-execute-button");
    return false;
  });
}
