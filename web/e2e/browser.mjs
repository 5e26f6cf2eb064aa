// Debian's Chromium, and what every page is watched for.
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
