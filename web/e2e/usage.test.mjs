// Resource usage is measured while a page shows it.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";

let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

test("memory usage shows on the execution's page and in the table of runners, and its peak after the end", async () => {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "python", waitFor: 60}) { runner { id } } }`);
  const runnerId = claimRunner.runner.id;
  const program = "import sys\nheld = b'x' * (100 << 20)\nprint('holds', flush=True)\nsys.stdin.read()";
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, {
    in: { runnerId, command: ["python3", "-c", program], stdin: true, timeLimit: 0 },
  });
  const { id } = startExecution.execution;

  const page = await open(browser);
  await page.goto(`${server.url}/executions/${id}`);
  const uses = page.locator(".card", { hasText: "Resource usage" });
  await uses.locator("text=/^1[0-9.]+ MiB of 256 MiB, peak 1[0-9.]+ MiB$/").waitFor();
  await uses.locator("text=/^1 of [0-9]+, peak [0-9]+$/").waitFor();
  await uses.locator("text=/^[0-9]+ % now, /").waitFor();
  await uses.locator("text=6 B").waitFor();

  // A phone shows it, too.
  const phone = await open(browser, { viewport: { width: 390, height: 800 } });
  await phone.goto(`${server.url}/executions/${id}`);
  await phone.locator("text=/^1[0-9.]+ MiB of 256 MiB/").waitFor();
  assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= 390), "the page is wider than the phone");

  const runners = await open(browser);
  await runners.goto(`${server.url}/runners?environment=python&state=CLAIMED`);
  const row = runners.locator(".table-row", { hasText: "Claimed" });
  await row.locator("text=/^1[0-9.]+ MiB of 256 MiB$/").waitFor();
  await row.locator("text=/^[0-9]+ %$/").waitFor();

  await server.ask(`mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, { in: { executionId: id, offset: 0, close: true } });
  const used = page.locator(".card", { hasText: "Resource usage" });
  await used.locator("text=/^peak 1[0-9.]+ MiB$/").waitFor();
  for (const { mistakes } of [page, phone, runners]) assert.deepEqual(mistakes, [], "mistakes on the page");
});
