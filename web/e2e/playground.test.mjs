// Programs that a person writes, runs, stops and shares, in a real browser, with real runners.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { judge } from "./axe.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

const admin = "the-first-token-of-the-playground-that-is-long-enough";
let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start({ token: admin }), launch()]);
  const put = (input) => server.ask(`mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, { in: input });
  await put({ id: "big", poolSize: 1, resources: { memoryMiB: 900_000 } });
  await put({ id: "cold", poolSize: 0 });
  await put({ id: "shell", poolSize: 2, defaultTimeLimit: 600 }); // a program that is to be stopped must not end before
  await put({ id: "loud", poolSize: 1, outputLimit: 100_000_000 });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** A page in a browser of its own. */
async function visit(address, { token = admin, ...options } = {}) {
  const page = await open(browser, options);
  await page.addInitScript((text) => sessionStorage.getItem("rockpool.token") ?? sessionStorage.setItem("rockpool.token", text), token);
  await page.goto(server.url + address);
  await page.waitForSelector(".cm-content");
  await page.waitForSelector(".pending", { state: "detached" });
  return page;
}

async function leave(...pages) {
  assert.deepEqual(pages.flatMap((page) => page.mistakes), []);
  await Promise.all(pages.map((page) => page.context().close()));
}

/** Replaces the program's text. */
async function write(page, text) {
  await page.click(".cm-content");
  await page.keyboard.press("Control+A");
  await page.keyboard.press("Delete"); // what Chromium inserts in the place of colours has a style, which the policy refuses
  await page.keyboard.insertText(text);
}
const written = (page) => page.textContent(".cm-content");
const field = (page, name) => page.locator(`label:text-is('${name}') ~ input, label:text-is('${name}') ~ textarea`);
const run = (page) => page.click("role=button[name=Run]");
const stop = (page) => page.click("role=button[name=Stop]");

/** The id of the execution that the page shows. */
async function shown(page) {
  return (await page.getAttribute("text=Open execution", "href")).split("/").at(-1);
}
const outcome = async (id) => (await server.ask(`query($id: ID!) { execution(id: $id, waitFor: 60) { outcome } }`, { id })).execution.outcome;
const lineOf = async (id) => (await server.ask(`query($id: ID!) { execution(id: $id) { commandLine } }`, { id })).execution.commandLine;
const waitingClaims = async () => (await server.ask(`{ waitingClaims { totalCount } }`)).waitingClaims.totalCount;
const claimed = async () => (await server.ask(`{ runners(states: [CLAIMED]) { totalCount } }`)).runners.totalCount;
const none = (what, count) => until(`no ${what}`, async () => (await count()) === 0);

test("Stop cancels an endless program, shows it, and leaves no runner behind", async () => {
  const page = await visit("/playground?environment=shell");
  assert.equal(await page.locator("role=button[name=Stop]").count(), 0);
  await write(page, "echo begin; while :; do sleep 1; done");
  await page.keyboard.press("Control+Enter");
  await page.waitForSelector(".output-line >> text=begin");
  await page.waitForSelector(".tag >> text=Running");
  await stop(page);
  await page.waitForSelector("text=Cancelled after");
  await page.waitForSelector("role=button[name=Stop]", { state: "detached" });
  assert.equal(await outcome(await shown(page)), "CANCELLED");
  await none("runner is claimed", claimed);
  await leave(page);
});

test("output shows while the program runs, also an unfinished line and each stream alone", async () => {
  const page = await visit("/playground?environment=shell");
  await write(page, "printf part; echo oh no >&2; sleep 1000");
  await run(page);
  await page.waitForSelector(".output-line:not(.stderr) >> text=/^part$/");
  await page.waitForSelector(".output-line.stderr >> text=/^oh no$/");
  await page.click("button:text-is('stderr')");
  await page.waitForSelector(".output-line >> text=part", { state: "detached" });
  await page.waitForSelector(".output-line.stderr >> text=/^oh no$/");
  await page.click("role=button[name=/^Line ., standard error$/]"); // its number, which is no link here
  await page.waitForSelector("button:text-matches('^Copy line .$')");
  assert.equal(new URL(page.url()).hash, ""); // which is for programs
  await page.fill("[aria-label='Search the output']", "OH");
  await page.waitForSelector("role=status >> text=1 line");
  await stop(page);
  await page.waitForSelector("text=Cancelled after");
  await leave(page);
});

test("a new run cancels the previous one", async () => {
  const page = await visit("/playground?environment=shell");
  await write(page, "echo begin; sleep 1000");
  await run(page);
  await page.waitForSelector(".output-line >> text=begin");
  const first = await shown(page);
  await write(page, "echo another");
  await run(page);
  await page.waitForSelector(".output-line >> text=another");
  assert.equal(await outcome(first), "CANCELLED");
  assert.notEqual(await shown(page), first);
  await page.waitForSelector("text=Succeeded after");
  await none("runner is claimed", claimed);
  await leave(page);
});

test("a run that waits for a runner says why, and can be stopped", async () => {
  const page = await visit("/playground?environment=big");
  await page.waitForSelector("text=Not run yet");
  await run(page);
  const head = page.locator(".verdict");
  await head.locator(".tag >> text=Waiting for a runner").waitFor();
  assert.doesNotMatch(await head.textContent(), /Not run yet/);
  assert.equal(await waitingClaims(), 1);
  await head.locator("text=You are next").waitFor();
  await head.locator("text=/memory|room/").waitFor(); // the pool's own reason
  await page.focus("text=Skip to the content");
  await page.keyboard.press("Enter");
  await page.waitForSelector("main:focus");
  assert.equal(new URL(page.url()).hash, "");
  await stop(page); // while it waits
  await head.locator("text=Stopped before the program started.").waitFor();
  await none("claim waits", waitingClaims);
  await run(page);
  await head.locator(".tag >> text=Waiting for a runner").waitFor();
  await page.click("nav >> text=Runners"); // leaving the page stops the waiting run
  await none("claim waits", waitingClaims);
  await leave(page);
});

test("the program survives a reload, another page and a failed run", async () => {
  const page = await visit("/playground?environment=shell");
  await write(page, "echo mine");
  await field(page, "Standard input").fill("in");
  await field(page, "File name").fill("../../proc/x");
  await run(page);
  await page.waitForSelector("[role=alert]");
  await page.waitForSelector(".tag >> text=Not run");
  const name = field(page, "File name");
  await name.click();
  await name.press("End");
  for (const _ of "../../proc/x") await page.keyboard.press("Backspace");
  await page.keyboard.type("sh mine.sh");
  for (const _ of "sh mine.sh") await page.keyboard.press("Backspace");
  await page.waitForSelector(".wrong >> text=A file needs a name");
  await page.keyboard.type("mine.sh");
  assert.equal(await field(page, "Command").inputValue(), "sh ../../proc/x");
  await page.keyboard.press("Enter");
  await page.reload();
  await page.waitForSelector(".cm-content >> text=echo mine");
  assert.equal(await field(page, "Standard input").inputValue(), "in");
  assert.equal(await field(page, "Command").inputValue(), "sh mine.sh");
  await run(page);
  await page.waitForSelector(".output-line >> text=mine");
  await page.click("nav >> text=Overview");
  await page.click("text=Run a program");
  await page.waitForSelector(".cm-content >> text=echo mine");
  await page.waitForSelector(".output-line >> text=mine"); // and its output
  const other = await page.context().newPage();
  await other.addInitScript((text) => sessionStorage.setItem("rockpool.token", text), admin);
  await other.goto(`${server.url}/playground`);
  await other.waitForSelector(".cm-content >> text=echo mine");
  await leave(page);
});

test("a program has several files, arguments and input, and its command is shown as it was typed", async () => {
  const page = await visit("/playground?environment=python");
  await write(page, "import sys, util; print(util.f(sys.argv[1:]), input())");
  await page.click("role=button[name='Add a file']");
  await field(page, "File name").fill("main.py");
  await page.waitForSelector(".wrong >> text=Two files have the name main.py");
  await run(page);
  await page.waitForSelector("[role=alert] >> text=Two files have the name main.py");
  await field(page, "File name").fill("util.py");
  await write(page, "def f(args): return len(args), args");
  await field(page, "Arguments").fill("a 'b c' $(id) \"");
  await page.waitForSelector(".wrong >> text=A quote in the arguments has no end");
  await field(page, "Arguments").fill("a 'b c' $(id)");
  await field(page, "Standard input").fill("the input");
  await run(page);
  await page.waitForSelector(".tag >> text=Succeeded");
  assert.equal(await page.textContent(".output-line"), "(3, ['a', 'b c', '$(id)']) the input");
  await page.click(".file-tabs >> text=util.py");
  await page.click("text=Make it the main file");
  assert.equal(await field(page, "Command").inputValue(), "python3 util.py");
  await page.waitForSelector(".file-tabs >> text=util.py · main");
  await page.click("role=button[name=Remove]");
  await page.click("dialog >> text=Remove it");
  assert.equal(await page.locator(".file-tabs button").count(), 2); // one file, and the button that adds one
  assert.match(await written(page), /import sys, util/);

  await page.selectOption("label:has-text('Environment') select", "c");
  await field(page, "Command").fill("cat main.py && printf '<%s>'");
  await field(page, "Arguments").fill("'x y' z");
  await run(page);
  await page.waitForSelector(".output-line >> text=<x y><z>");
  await page.click("text=Open execution");
  await page.waitForSelector(`h1 >> text="cat main.py && printf '<%s>' 'x y' z"`);
  assert.equal(await lineOf(page.url().split("/").at(-1)), "cat main.py && printf '<%s>' 'x y' z");
  await page.click("nav >> text=Executions");
  await page.waitForSelector(".table-row >> text=cat main.py");
  assert.equal(await page.locator(".table-row >> text=sh -c").count(), 0);
  await leave(page);
});

test("a sample replaces a program only after a confirmation, and the program can be restored", async () => {
  const page = await visit("/playground?environment=c");
  const samples = page.locator("label:has-text('Load a sample') select");
  assert.deepEqual(await samples.locator("option").allTextContents(), ["Sample …", "C", "C++", "Shell"]);
  await samples.selectOption("C++"); // the sample is unchanged
  await page.waitForSelector(".cm-content >> text=iostream");
  await write(page, "int main() { return 0; } // mine");
  await samples.selectOption("C");
  await page.click("dialog >> text=Keep my program");
  assert.match(await written(page), /mine/);
  await samples.selectOption("C");
  await page.click("dialog >> role=button[name='Load the sample']");
  await page.waitForSelector(".cm-content >> text=stdio.h");
  await field(page, "Standard input").fill("Ada");
  await run(page);
  await page.waitForSelector(".output-line >> text=Hello, Ada!");
  await page.click("text=Restore it");
  await page.waitForSelector(".cm-content >> text=mine");
  assert.equal(await field(page, "File name").inputValue(), "main.cpp");
  await leave(page);
});

test("a link loads a program without running it, and keeps the reader's own", async () => {
  const page = await visit("/playground?environment=shell");
  await write(page, "echo theirs");
  await field(page, "Arguments").fill("'a b'");
  await page.click("role=button[name='Link …']");
  const link = await page.inputValue("dialog >> label:text-is('The link') ~ .with-unit input");
  assert.ok(new URL(link).hash.length > 50 && new URL(link).search === "");
  await page.click("dialog >> text=Close");

  const reader = await visit("/playground?environment=python");
  await write(reader, "print('mine')");
  await reader.reload();
  await reader.waitForSelector(".cm-content >> text=mine");
  const asked = [];
  reader.on("request", (request) => asked.push(request.postData() ?? ""));
  await reader.goto(link);
  await reader.waitForSelector(".cm-content >> text=echo theirs");
  await reader.waitForSelector("text=Loaded from a link. Not run yet.");
  assert.ok(!asked.some((body) => /claimRunner|run\(/.test(body)), "it ran");
  assert.equal(new URL(reader.url()).hash, "");
  assert.equal(await field(reader, "Arguments").inputValue(), "'a b'");
  await write(reader, "echo theirs, changed");
  await reader.reload();
  await reader.waitForSelector(".cm-content >> text=theirs, changed");
  await reader.click("text=Restore it");
  await reader.waitForSelector(".cm-content >> text=print('mine')");
  await reader.click("text=Restore it");
  await reader.waitForSelector(".cm-content >> text=theirs, changed");
  await reader.goto(`${link.slice(0, -20)}`);
  await reader.waitForSelector("text=The link contains no valid program");
  await reader.waitForSelector(".cm-content >> text=theirs, changed");

  await field(page, "Standard input").fill(Array.from({ length: 4_000 }, (_, n) => Math.sin(n).toString(36)).join(" "));
  await page.click("role=button[name='Link …']");
  await page.waitForSelector("dialog >> text=/too large for a link: the link would have [0-9,]+ characters, of at most 30,000/");
  await leave(page, reader);
});

test("a result is shared as a read-only link", async () => {
  const page = await visit("/playground?environment=shell");
  await write(page, "echo shared");
  await run(page);
  await page.waitForSelector(".tag >> text=Succeeded");
  await page.click("role=button[name='Share …']");
  await page.click("role=button[name='Create the link']");
  const link = await page.inputValue("dialog >> label:text-is('The link') ~ .with-unit input");
  const guest = await open(browser);
  await guest.goto(link);
  await guest.waitForSelector(".output-line >> text=shared");
  await guest.waitForSelector("dd >> text=/^sh main.sh$/");
  assert.equal(await guest.locator("a, nav").count(), 0);
  await leave(page, guest);
});

test("an observer can read a program, and sees why it can't run it", async () => {
  const { createToken } = await server.ask(`mutation { createToken(input: {name: "reader", role: OBSERVER, tenant: "default"}) { secret } }`);
  const author = await visit("/playground?environment=shell");
  await write(author, "echo to be read");
  await author.click("role=button[name='Link …']");
  const link = await author.inputValue("dialog >> label:text-is('The link') ~ .with-unit input");
  const page = await visit(link.slice(server.url.length), { token: createToken.secret, viewport: { width: 390, height: 800 }, bypassCSP: true });
  await page.waitForSelector(".cm-content >> text=echo to be read");
  await page.waitForSelector("text=Running needs the role CLIENT; you are OBSERVER of tenant default");
  for (const name of ["Run", "Stop", "Share …"]) assert.equal(await page.locator(`role=button[name='${name}']`).count(), 0, name);
  const asked = [];
  page.on("request", (request) => asked.push(request.postData() ?? ""));
  await page.click(".cm-content");
  await page.keyboard.press("Control+Enter");
  await page.click("nav >> text=Executions"); // requests of the key press precede those of the next page
  await until("the next page sends a request", () => asked.some((body) => /executions/.test(body)));
  assert.ok(!asked.some((body) => /claimRunner|run\(/.test(body)), "it ran");
  await page.goBack();
  await page.waitForSelector(".cm-content >> text=to be read");
  assert.equal(await page.locator("[role=alert], .verdict").count(), 0);
  assert.deepEqual(await judge(page, "playground, as an observer"), []);
  await leave(author, page);
});

test("50 MB of output arrive, and a pool of size 0 starts a runner", async () => {
  const page = await visit("/playground?environment=loud");
  await write(page, "yes 0123456789012345678901234567890123456789 | head -c 50000000; echo; echo end");
  await field(page, "Command").fill("sh main.sh");
  await run(page);
  await page.waitForSelector("text=Succeeded after");
  await page.waitForSelector(".output-line >> text=/^end$/");
  await page.waitForSelector("button:has-text('Show the lines before')"); // no line is left out

  await page.selectOption("label:has-text('Environment') select", "cold");
  await write(page, "cat | wc -c");
  await field(page, "Standard input").fill("x".repeat(300_000));
  await run(page);
  await page.waitForSelector(".output-line >> text=300000");
  await field(page, "Standard input").fill("");
  await run(page);
  await page.waitForSelector(".output-line >> text=/^0$/"); // it doesn't wait for input
  await none("runner is claimed", claimed);
  await leave(page);
});

/** Whether the first matching element is inside the window. */
function inSight(selector) {
  const { top, bottom } = document.querySelector(selector).getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
}

for (const colorScheme of ["light", "dark"]) {
  test(`the page works at 390 px and by keyboard, and passes axe, ${colorScheme}`, async () => {
    const page = await visit("/playground?environment=shell", { viewport: { width: 390, height: 800 }, colorScheme, bypassCSP: true });
    const found = await judge(page, "at first");
    assert.equal(await page.locator("main .button.primary").count(), 1);
    await page.click("role=button[name='Add a file']");
    await field(page, "Standard input").fill("Ada");
    await field(page, "Standard input").press("Control+Enter");
    await page.waitForSelector(".output-line >> text=Hello, Ada!");
    found.push(...(await judge(page, "after a run")));
    await page.click(".file-tabs >> text=main.sh");
    await write(page, "echo begin; sleep 1000");
    await page.evaluate(() => window.scrollTo(0, 0));
    assert.equal(await page.evaluate(inSight, ".verdict"), false);
    await run(page);
    await page.waitForSelector(".output-line >> text=begin");
    assert.equal(await page.evaluate(inSight, ".verdict"), true);
    assert.equal(await page.evaluate(inSight, ".output-line"), true);
    found.push(...(await judge(page, "while it runs")));
    await page.focus("role=button[name=Stop]");
    await page.keyboard.press("Enter");
    await page.waitForSelector("text=Cancelled after");
    await page.selectOption("label:has-text('Load a sample') select", "Shell");
    await page.waitForSelector("dialog[open]");
    found.push(...(await judge(page, "the question")));
    await page.keyboard.press("Escape");
    await page.click("role=button[name='Link …']");
    await page.waitForSelector("dialog[open]");
    found.push(...(await judge(page, "the link")));
    assert.deepEqual(found, []);
    await leave(page);
  });
}
