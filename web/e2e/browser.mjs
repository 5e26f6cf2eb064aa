// Debian's Chromium, and what every page is watched for.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

/** Starts the browser. */
export function launch() {
  // As root it has no sandbox of its own; it opens nothing but our pages.
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** A page whose mistakes are gathered: errors in the console, and what the policy refused. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.mistakes = [];
  page.on("pageerror", (error) => page.mistakes.push(`${error.message}\n${error.stack}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/ERR_CONNECTION_(REFUSED|RESET)|ERR_EMPTY_RESPONSE|WebSocket connection to/.test(message.text())) page.mistakes.push(`${message.text()} (${message.location().url})`);
  });
  page.on("requestfailed", (request) => {
    if (request.failure()?.errorText === "csp") page.mistakes.push(`refused: ${request.url()}`);
  });
  return page;
}

/**
 * Scrolls a table, which asks for its rows as its end comes near, down to the
 * last of n, and returns what it took, in words. Judged is what is in the page
 * and what is asked for, and the time until a step is painted only beside that
 * of the same page's frames at rest, before and after: other users of the
 * machine slow all.
 */
export async function scrollDown(page, n, step) {
  let pages = 0;
  const count = (request) => {
    if (request.postDataJSON()?.variables?.first === 500) pages++; // the refreshes ask for other numbers
  };
  page.on("request", count);
  const frames = () =>
    page.evaluate(async () => {
      const began = performance.now();
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const rows = [...document.querySelectorAll(".table-row")].map((row) => Number(row.getAttribute("aria-rowindex")));
      return { took: performance.now() - began, rows: rows.length, last: Math.max(...rows) };
    });
  const median = (times) => Math.round(times.sort((a, b) => a - b)[times.length >> 1]);
  const rest = async () => {
    const took = [];
    while (took.length < 20) took.push((await frames()).took);
    return median(took);
  };
  const before = await rest();
  const steps = [];
  let most = 0;
  for (const began = Date.now(); ; ) {
    await step();
    const { took, rows, last } = await frames();
    steps.push(took);
    most = Math.max(most, rows);
    if (last === n + 1) break;
    assert.ok(Date.now() - began < 120_000, `it came to row ${last} only`);
  }
  page.off("request", count);
  const still = Math.max(before, await rest());
  const told = `${steps.length} steps to the last of ${n} rows took ${median(steps)} ms each, at the median, and ${still} ms at rest; ${most} rows were in the page at most; ${pages} pages were asked for`;
  assert.ok(most < 100, told);
  assert.ok(Math.abs(pages - n / 500) <= 2, told);
  assert.ok(median(steps) <= 5 * Math.max(still, 30), told);
  return told;
}
