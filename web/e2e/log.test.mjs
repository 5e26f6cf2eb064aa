// The log viewer: 50 MB of numbered lines, links to them, the search on the server, and links to the replay.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

let server;
let browser;
let big; // an execution that printed 50 MB

const lines = 860_000;
let needle; // the number of a line in the middle, which depends on the order in which the pipes were read
let errors; // the numbers of the lines on stderr

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
  await server.ask(`mutation { putEnvironment(input: {id: "flood", poolSize: 1, outputLimit: 200000000, resources: {memoryMiB: 256}}) { created } }`);
  const half = lines / 2;
  big = await server.run(
    `seq -f '%06.0f abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz' ${half}; echo 'The \x1b[31mNee\x1b[0mdle'; echo 'an error' >&2; echo 'another error' >&2; seq -f '%06.0f abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz' ${half + 1} ${lines}; echo 'the end'`,
    "flood",
  );
  await server.end(big);
  needle = (await search("containing: \"needle\""))[0];
  errors = await search("stream: STDERR");
});

/** The numbers of lines. */
async function search(which) {
  const { execution } = await server.ask(`query($id: ID!) { execution(id: $id) { lines(${which}) { lines { number } } } }`, { id: big });
  return execution.lines.lines.map((line) => line.number);
}
after(async () => {
  await browser?.close();
  await server?.stop();
});

async function visit(path, options) {
  const page = await open(browser, options);
  await page.goto(server.url + path);
  return page;
}

/** Starts a shell command whose stdin stays open. */
async function started(shell) {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "shell", waitFor: 60}) { runner { id } } }`);
  const runnerId = claimRunner.runner.id;
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, { in: { runnerId, shell, stdin: true, timeLimit: 600 } });
  const { id } = startExecution.execution;
  return {
    id,
    proceed: () => server.ask(`mutation($id: ID!) { writeStdin(input: {executionId: $id, text: "\\n"}) { offset } }`, { id }),
    release: () => server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: runnerId }),
  };
}

/** The numbers of the visible lines that have a class. */
function numbers(page, name) {
  return page.evaluate((name) => {
    const box = document.querySelector(".output-scroll")?.getBoundingClientRect() ?? { top: 0, bottom: 0 };
    return [...document.querySelectorAll(`.output-line${name}`)]
      .filter((line) => {
        const { top, bottom } = line.getBoundingClientRect();
        return bottom > box.top && top < box.bottom;
      })
      .map((line) => Number(line.dataset.line));
  }, name);
}

test("a line in the middle of 50 MB is found, linked to, and copied", async () => {
  const page = await visit(`/executions/${big}`);
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.waitForSelector(".output-line >> text=the end"); // the view begins at the end
  await page.fill("[aria-label='Search the output']", "needle");
  await page.waitForSelector("role=status >> text=1 line");
  await page.keyboard.press("Enter");
  await page.waitForSelector("role=status >> text=1 of 1 line");
  await page.waitForSelector(`.output-line.hit[data-line="${needle}"]`);
  assert.equal(await page.textContent(".output-line.hit"), "The Needle");
  await until("it is in sight", async () => (await numbers(page, ".hit")).includes(needle));
  assert.ok((await page.locator(".output-line").count()) < 150, "more lines are in the page than are seen");

  // A range, opened in a new tab.
  await page.click(`.output-line[data-line="${needle}"] .line-number`);
  await page.click(`.output-line[data-line="${needle + 2}"] .line-number`, { modifiers: ["Shift"] });
  assert.equal(new URL(page.url()).hash, `#L${needle}-L${needle + 2}`);
  const address = page.url();
  const other = await page.context().newPage();
  await other.goto(address);
  await until("the range is marked, and in sight", async () => (await numbers(other, ".marked")).length === 3);
  assert.deepEqual(await numbers(other, ".marked"), [needle, needle + 1, needle + 2]);
  await Promise.all([other.waitForSelector("role=status >> text=Copied"), other.click(`text=Copy lines ${needle}–${needle + 2}`)]); // "Copied" disappears after a moment
  assert.match(await other.evaluate(() => navigator.clipboard.readText()), new RegExp("^The Needle\n.*\n.*[^\n]$"));
  // The selection contains no line numbers.
  const selected = await other.evaluate(() => {
    const range = document.createRange();
    range.selectNodeContents(document.querySelector(".output-line.marked"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return getSelection().toString();
  });
  assert.equal(selected, "The Needle");
  await other.evaluate((hash) => (location.hash = hash), "#L7");
  await until("another line is in sight", async () => (await numbers(other, ".marked")).includes(7));
  assert.match(await other.textContent('.output-line[data-line="7"]'), /^000007 abc/);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("one stream is shown alone, with the numbers of both", async () => {
  const page = await visit(`/executions/${big}`);
  await page.waitForSelector(".output-line >> text=the end");
  await page.click("button:text-is('stderr')");
  await page.waitForSelector(".output-line >> text=another error");
  assert.deepEqual(await numbers(page, ""), errors);
  // One line is the tab stop; Tab then leaves the log.
  const focused = () => page.evaluate(() => document.activeElement.closest(".output-line")?.dataset.line);
  await page.focus(".output-scroll");
  await page.keyboard.press("Tab");
  assert.equal(await focused(), `${errors[0]}`);
  await page.keyboard.press("ArrowDown");
  await until("the next line has the focus", async () => (await focused()) === `${errors[1]}`);
  await page.keyboard.press("Enter");
  await page.keyboard.press("ArrowUp");
  await until("the line before has the focus", async () => (await focused()) === `${errors[0]}`);
  await page.keyboard.press("Shift+Enter");
  await until("both are marked", () => page.evaluate((hash) => location.hash === hash, `#L${errors[0]}-L${errors[1]}`));
  await page.keyboard.press("Escape");
  await page.waitForSelector("button:text-is('Copy all')");
  assert.equal(new URL(page.url()).hash, "");
  await page.keyboard.press("Tab");
  assert.ok(await page.evaluate(() => !document.activeElement.closest(".output-scroll")), "Tab doesn't leave the log");
  await page.keyboard.press("Shift+Tab");
  assert.equal(await focused(), `${errors[0]}`);
  const mark = page.locator(".output-line.stderr .line-stream >> nth=0");
  assert.deepEqual([await mark.getAttribute("data-shown"), await mark.evaluate((element) => getComputedStyle(element, "::before").content)], ["err", '"err"']);
  await page.fill("[aria-label='Search the output']", "another");
  await page.keyboard.press("Enter");
  await page.waitForSelector("role=status >> text=1 line");
  await page.click("button:text-is('stdout')");
  await page.waitForSelector("role=status >> text=no matches");
  await page.waitForSelector(".output-line >> text=the end");
  await page.click("button:text-is('both')");
  // The keyboard reaches the rows before the listed ones.
  await page.waitForSelector(".output-line >> text=the end");
  await page.focus("button:has-text('Show the lines before')");
  await page.keyboard.press("Enter");
  await until("the lines before are in sight", async () => {
    const shown = await numbers(page, "");
    return shown.length > 0 && Math.max(...shown) < lines - 49_000 && shown[0] > 0;
  });
  await page.click("text=Jump to the end");
  await page.waitForSelector(".output-line >> text=the end");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("a running output is followed, and doesn't scroll while the user reads", async () => {
  const { id, proceed, release } = await started(`printf 'part'; read a; echo " and rest"; seq 200; read a; echo last; read a; seq 300 400; echo 'the end'`);
  const page = await visit(`/executions/${id}`);
  await page.waitForSelector(".output-line >> text=part");
  await proceed();
  await page.waitForSelector(".output-line[data-line='201'] >> text=200");
  await page.fill("[aria-label='Search the output']", "last");
  await page.waitForSelector("role=status >> text=no matches");
  await page.evaluate(() => document.querySelector(".output-scroll").scrollTo(0, 0));
  await page.waitForSelector(".output-line[data-line='1'] >> text=part and rest");
  await page.waitForSelector("text=Jump to the end");
  const frames = () => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  await frames(); // the scroll events have been delivered
  await page.evaluate(() => {
    window.moved = 0;
    document.querySelector(".output-scroll").addEventListener("scroll", () => window.moved++);
  });
  await proceed();
  await page.waitForSelector("role=status >> text=1 line"); // the search continues: the page has the new line
  await frames();
  assert.deepEqual([await page.evaluate(() => window.moved), (await numbers(page, ""))[0]], [0, 1]);
  await page.click("text=Jump to the end");
  await page.waitForSelector(".output-line[data-line='202'] >> text=last");
  await proceed();
  await page.waitForSelector(".output-line >> text=the end");
  await page.waitForSelector(".tag >> text=Succeeded");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
  await release();
});

test("a line's time links to the replay, which has links to its moments", async () => {
  const { id, proceed, release } = await started("echo first; read a; sleep 3; echo second");
  await until("the first line is recorded", async () => (await server.ask("query($id: ID!) { execution(id: $id) { lines { total } } }", { id })).execution.lines.total === 1);
  await proceed();
  await server.end(id);
  const page = await visit(`/executions/${id}`, { viewport: { width: 390, height: 800 } });
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.waitForSelector(".output-line >> text=second");
  await page.click("button:text-is('Timestamps')");
  const first = (await page.getAttribute(".output-line[data-line='1'] .line-time", "href")).replace(/.*#/, "");
  await page.click(".output-line[data-line='2'] .line-time");
  await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("second"));
  const moment = Number(new URL(page.url()).hash.replace("#t=", ""));
  assert.ok(moment >= 3, `the moment is ${moment}`);
  await page.click("text=Copy link to this moment");
  await page.waitForSelector("role=status >> text=Copied");
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.startsWith(`${server.url}/executions/${id}/replay#t=`), copied);
  assert.ok(Math.abs(Number(new URL(copied).hash.replace("#t=", "")) - moment) < 0.05, copied);
  const other = await page.context().newPage();
  await other.goto(copied);
  await other.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("second"));
  await other.goto(copied.replace(/t=.*/, first));
  await other.waitForFunction(() => /first(?!.*second)/.test(document.querySelector(".xterm-rows")?.textContent));
  await other.waitForSelector("role=button[name=Play]"); // it is paused
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than its window");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
  await release();
});
