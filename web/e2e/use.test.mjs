// The main uses of the dashboard, in a real browser with real runners.
import assert from "node:assert/strict";
import { after, afterEach, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";

let server;
let browser;
let pages = [];

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});
afterEach(async () => {
  const mistakes = pages.flatMap((page) => page.mistakes);
  await Promise.all(pages.map((page) => page.context().close()));
  pages = [];
  assert.deepEqual(mistakes, [], "mistakes on the pages");
});

async function visit(address, options) {
  const page = await open(browser, options);
  pages.push(page);
  await page.goto(server.url + address);
  return page;
}

test("a first visit comes to a running Python program within five clicks", async () => {
  const page = await visit("/");
  let clicks = 0;
  const click = async (selector) => {
    clicks++;
    await page.click(selector);
  };
  await click("text=Run a program");
  await page.waitForSelector(".cm-content");
  await click("role=button[name=Run]");
  await page.waitForSelector(".tag >> text=Succeeded");
  assert.equal(await page.textContent(".output-line"), "Hello, world!");
  assert.ok(clicks <= 5);
});

test("another tab receives a change by its subscription", async () => {
  const [one, two] = await Promise.all([visit("/environments/shell"), visit("/")]);
  const row = two.locator(".pool-row", { hasText: "shell" });
  await row.locator("text=2 idle").waitFor();
  await two.route("**/graphql", () => {}); // its requests get no response, so changes can only come by the subscription
  await one.locator("details.advanced:not([open]) > summary").click();
  await one.fill("[aria-label='Warm runners, as a slider'] ~ input", "3");
  await one.waitForSelector("text=1 more runner will be started.");
  await one.click("role=button[name=Save]");
  await row.locator("[aria-label*='pool size 3']").waitFor();
  await row.locator("text=3 idle").waitFor();
  await one.locator("text=3 idle").waitFor();
});

test("the server's errors show at their fields", async () => {
  const page = await visit("/new-environment");
  await page.fill("label:text-is('Name') ~ input", "web test");
  await page.click("text=Create the environment");
  const wrong = page.locator(".field", { hasText: "Programs refer to the environment by this name" }).locator(".wrong");
  await wrong.waitFor();
  assert.match(await wrong.textContent(), /must be 1 to 64 letters/);
  await page.fill("label:text-is('Name') ~ input", "webtest");
  await page.click("summary");
  await page.fill("label:text-is('Memory') ~ .with-unit input", "3");
  await page.click("text=Create the environment");
  const memory = page.locator(".field", { hasText: "files in the workspace count too" });
  await memory.locator(".wrong").waitFor();
  assert.match(await memory.locator(".wrong").textContent(), /must be 16 to 1048576 MiB, not 3/);
  assert.equal(await memory.locator("input").getAttribute("aria-invalid"), "true");
  await page.fill("label:text-is('Memory') ~ .with-unit input", "many");
  await page.click("text=Create the environment");
  await page.waitForSelector("text=must be a whole number");
});

test("an environment is created, copied and deleted, and the dialog says what is deleted", async () => {
  const page = await visit("/new-environment");
  await page.fill("label:text-is('Name') ~ input", "webtest");
  await page.click("text=Create the environment");
  await page.waitForURL("**/environments/webtest");
  await page.waitForSelector("text=2 idle");
  await page.click("text=Copy");
  await page.waitForURL("**/new-environment?from=webtest");
  assert.equal(await page.inputValue("label:text-is('Name') ~ input"), "webtest-copy");
  await page.click("text=Create the environment");
  await page.waitForURL("**/environments/webtest-copy");
  for (const id of ["webtest-copy", "webtest"]) {
    await page.goto(`${server.url}/environments/${id}`);
    await page.waitForSelector("text=2 idle");
    await page.click("text=Delete …");
    await page.waitForSelector("dialog >> text=and 2 idle runners");
    await page.click(`role=button[name='Delete ${id}']`);
    await page.waitForURL(`${server.url}/`);
  }
  await page.locator(".pool-row", { hasText: "webtest" }).first().waitFor({ state: "detached" });
});

test("a runner is claimed and released, and the dialog says why it can't claim yet", async () => {
  const page = await visit("/runners");
  await page.click("text=Claim a runner");
  await page.waitForSelector("dialog >> text=Choose the environment first.");
  await page.focus("role=button[name='Claim it']");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "SELECT");
  await page.selectOption("dialog select >> nth=0", "shell");
  await page.waitForSelector("dialog >> text=Choose the environment first.", { state: "detached" });
  await page.click("role=button[name='Claim it']");
  const claimed = page.locator(".table-row", { hasText: "by=dashboard" });
  await claimed.waitFor();
  await claimed.locator("text=Release").click();
  await page.click("text=Release it");
  await claimed.waitFor({ state: "detached" });
});

test("an execution gets input, signals and a cancellation, and shows its outcome", async () => {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "shell", waitFor: 60}) { runner { id } } }`);
  const start = async (shell, more = {}) =>
    (await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, { in: { runnerId: claimRunner.runner.id, shell, stdin: true, timeLimit: 600, ...more } })).startExecution.execution.id;

  const page = await visit(`/executions/${await start("read -r line; echo got $line; cat")}`);
  await page.fill("[aria-label='A line of input']", "a line");
  await page.click("role=button[name=Send] >> nth=-1");
  await page.waitForSelector(".output-line >> text=got a line");
  await page.click("text=End of input");
  await page.waitForSelector("text=Succeeded after");

  await page.goto(`${server.url}/executions/${await start("sleep 1000")}`);
  await page.selectOption("label:has-text('Signal') select", "TERM");
  await page.click("role=button[name=Send] >> nth=0");
  await page.waitForSelector("text=by SIGTERM");

  await page.goto(`${server.url}/executions/${await start("sleep 100", { timeLimit: 1 })}`);
  await page.waitForSelector("text=/Stopped after [1-9][0-9.]* s: .*time limit of 1 s/");

  await page.goto(`${server.url}/executions/${await start("sleep 1000")}`);
  await page.click("text=Cancel …");
  await page.click("dialog >> text=Cancel it");
  await page.waitForSelector("text=Cancelled after");
  await page.waitForSelector(".waterfall >> text=Queued");
  await server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: claimRunner.runner.id });
});

test("a file changed by others is overwritten only after a confirmation", async () => {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "shell", waitFor: 60}) { runner { id } } }`);
  const runnerId = claimRunner.runner.id;
  const update = (change) => server.ask(`mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written deleted } }`, { in: { runnerId, ...change } });
  const content = async () => {
    const { runner } = await server.ask(`query($id: ID!) { runner(id: $id) { file(path: "notes.txt") { downloadUrl } } }`, { id: runnerId });
    return (await fetch(server.url + runner.file.downloadUrl)).text();
  };
  await update({ write: [{ path: "notes.txt", text: "first\n" }] });
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, { in: { runnerId, command: ["cat"], stdin: true, timeLimit: 0 } });
  const page = await visit(`/terminal/${startExecution.execution.id}`);
  const type = async (text) => {
    await page.click("dialog .cm-content");
    await page.keyboard.press("Control+End");
    await page.keyboard.type(text);
    await page.click("dialog >> role=button[name=Save]");
  };
  await page.click(".files >> text=notes.txt");
  await page.waitForSelector("dialog .cm-content");
  await update({ write: [{ path: "notes.txt", text: "theirs\n" }] });
  await type("mine");
  await page.waitForSelector("dialog >> text=This file was changed after you opened it");
  assert.equal(await content(), "theirs\n");
  await page.click("text=Reload without my changes");
  await page.waitForSelector("dialog .cm-content >> text=theirs");

  await update({ write: [{ path: "notes.txt", text: "theirs again\n" }] });
  await type("mine");
  await page.click("text=Overwrite it");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  assert.equal(await content(), "theirs\nmine");

  await page.click(".files >> text=notes.txt");
  await page.waitForSelector("dialog .cm-content >> text=mine");
  await update({ delete: ["notes.txt"] });
  await type(" too");
  await page.waitForSelector("dialog >> text=This file was deleted after you opened it");
  await page.click("text=Create it again");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  assert.equal(await content(), "theirs\nmine too");
  await server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: runnerId });
});

test("a link reproduces a program, and the calls behind it work", async () => {
  const page = await visit("/playground?environment=shell");
  await page.waitForSelector(".cm-content");
  await page.fill("label:text-is('Standard input') ~ textarea", "it's me");
  await page.click("role=button[name=Run]");
  await page.waitForSelector(".output-line >> text=Hello, it's me!");
  await page.click("role=button[name='Link …']");
  const link = await page.inputValue("dialog >> label:text-is('The link') ~ .with-unit input");

  const other = await open(browser);
  pages.push(other);
  await other.goto(link);
  await other.click("role=button[name=Run]");
  await other.waitForSelector(".output-line >> text=Hello, it's me!");

  await other.click("text=as curl");
  const { spawnSync } = await import("node:child_process");
  const done = spawnSync("bash", ["-c", await other.textContent(".calls")], { encoding: "utf8" });
  assert.match(done.stdout, /Hello, it's me!/, done.stderr);
});

test("a program's output can't affect the page", async () => {
  const hostile = `printf '<img src=x onerror=alert(1)><script>alert(2)</script>\\n'; printf '\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007\\033]8;;javascript:alert(1)\\007click\\033]8;;\\007\\n\\033[31mred\\033[0m\\n'`;
  const id = await server.run(hostile);
  await server.end(id);
  const page = await visit(`/executions/${id}`);
  await page.waitForSelector(".output-line >> text=red");
  const look = () => page.evaluate(() => ({ title: document.title, injected: document.querySelectorAll("main img, main script, a[href^=javascript]").length }));
  assert.equal((await look()).injected, 0);
  assert.equal(await page.textContent(".output-line >> nth=0"), "<img src=x onerror=alert(1)><script>alert(2)</script>");
  assert.equal(await page.textContent(".output-line >> nth=1"), "click");
  assert.equal(await page.locator(".output-line .fg1").textContent(), "red");
  await page.click("text=Show on a terminal");
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("red"));
  const { title, injected } = await look();
  assert.equal(injected, 0);
  assert.doesNotMatch(title, /owned/);
});
