// The terminal and the files panel.
import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before } from "node:test";
import { judge } from "./axe.mjs";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
  await server.ask(`mutation { putEnvironment(input: {id: "flood", poolSize: 1, outputLimit: 4000000000, resources: {memoryMiB: 256}}) { created } }`);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const screen = (page, text) => page.waitForFunction((wanted) => document.querySelector(".xterm-rows")?.textContent.replaceAll("\u00a0", " ").includes(wanted), text);

async function shell() {
  const page = await open(browser);
  await page.goto(`${server.url}/terminal`);
  await page.click("[aria-label='Open a shell in shell']");
  await screen(page, "$");
  return page;
}

/** Starts a shell command in a new runner, and returns the execution's id. */
async function started(command, more, environmentId = "shell") {
  const { claimRunner } = await server.ask(`mutation($id: ID!) { claimRunner(input: {environmentId: $id, waitFor: 60}) { runner { id } } }`, { id: environmentId });
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, {
    in: { runnerId: claimRunner.runner.id, shell: command, timeLimit: 600, ...more },
  });
  return startExecution.execution.id;
}

const printed = (id, text) =>
  until(`${text} is printed`, async () => {
    const { execution } = await server.ask(`query($id: ID!) { execution(id: $id) { output { chunks { text } } } }`, { id });
    return execution.output.chunks.map((chunk) => chunk.text).join("").includes(text);
  });

test("a shell survives a reload and a restart of the server", async () => {
  const page = await shell();
  const { executions } = await server.ask(`{ executions(newestFirst: true, first: 1) { nodes { id commandLine } } }`);
  assert.equal(executions.nodes[0].commandLine, "shell"); // not the script that chooses a shell
  const renewed = page.waitForRequest((asked) => asked.postData()?.includes("mutation RenewLease") && asked.postDataJSON().variables.id === executions.nodes[0].id);
  await page.keyboard.type("echo one $((40+2))\n");
  await screen(page, "one 42");
  await page.reload();
  assert.deepEqual(await (await (await renewed).response()).json(), { data: { renewLease: { renewed: true } } });
  await screen(page, "one 42");
  await page.click(".terminal-box");
  await page.keyboard.type("echo two $((40+3))\n");
  await screen(page, "two 43");
  assert.equal(await page.evaluate(() => document.querySelector(".xterm-rows").textContent.match(/one 42/g).length), 1);

  await server.crash();
  await page.keyboard.type("echo three $((40+4))\n");
  await screen(page, "three 44");

  // Another tab draws it from the beginning.
  const other = await open(browser);
  await other.goto(page.url());
  await screen(other, "three 44");
  assert.deepEqual(other.mistakes, []);

  await page.bringToFront();
  await page.click(".terminal-box");
  await page.setViewportSize({ width: 900, height: 500 });
  // The program gets the new size a moment later.
  await page.keyboard.type("clear; until [ $(stty size | cut -d' ' -f1) -lt 30 ]; do sleep 0.1; done; echo small $((1+1))\n");
  await screen(page, "small 2");

  await page.keyboard.type("printf '\\033[38;2;255;100;0mtrue colour\\033[0m'; exit 3\n");
  await page.waitForSelector("text=with exit status 3");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
  await other.context().close();
});

test("an execution is replayed with its timing, and exported", async () => {
  // Output is timed when it is recorded, so the pause begins once "one" is recorded.
  const id = await started("echo one; read line; sleep 1.2; printf '\\033[31mtwo\\033[0m\\n'", { stdin: true });
  await printed(id, "one");
  await server.ask(`mutation($id: ID!) { writeStdin(input: {executionId: $id, text: "\\n"}) { offset } }`, { id });
  await server.end(id);
  const page = await open(browser);
  await page.goto(`${server.url}/executions/${id}`);
  await page.click("text=Replay");
  await screen(page, "two");
  await page.waitForSelector("text=Play again");
  await page.fill("[aria-label=Position]", "0.5");
  await page.waitForFunction(() => !document.querySelector(".xterm-rows").textContent.includes("two"));
  await page.selectOption("label:has-text('Speed') select", "8");
  await page.click("role=button[name=Play]");
  await screen(page, "two");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Download the asciicast")]);
  const cast = await readFile(await download.path(), "utf8");
  assert.match(cast, /^\{"version":2,.*\n\[[\d.]+,"o","one\\r\\n"\]\n/);
  const [, one, two] = cast.trim().split("\n").map((line) => JSON.parse(line)[0]);
  assert.ok(two - one > 1, `two came ${two - one} s after one, for which the program slept 1.2 s`);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("a replay has the terminal's size at each moment", async () => {
  const shell = "trap 'stty size; echo resized' WINCH; stty size; echo ready; while ! read line; do :; done";
  const id = await started(shell, { terminal: { columns: 50, rows: 20 } });
  await printed(id, "ready");
  await server.ask(`mutation($id: ID!) { resizeTerminal(input: {executionId: $id, columns: 100, rows: 30}) { execution { id } } }`, { id });
  await printed(id, "resized");
  await server.ask(`mutation($id: ID!) { writeStdin(input: {executionId: $id, text: "over\\n"}) { offset } }`, { id });
  await server.end(id);

  const page = await open(browser);
  await page.goto(`${server.url}/executions/${id}/replay`);
  await screen(page, "30 100");
  await page.waitForSelector("text=Play again");
  const rows = () => page.evaluate(() => document.querySelectorAll(".xterm-rows > div").length);
  assert.equal(await rows(), 30);
  await page.fill("[aria-label=Position]", "0");
  await page.waitForFunction(() => document.querySelectorAll(".xterm-rows > div").length === 20);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Download the asciicast")]);
  const cast = await readFile(await download.path(), "utf8");
  assert.match(cast, /^\{"version":2,"width":50,"height":20.*\n(?:\[[\d.e-]+,"o".*\n)+\[[\d.]+,"r","100x30"\]\n\[[\d.]+,"o","30 100/);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("the page stays usable during much output, and Ctrl-C ends it", async (t) => {
  const page = await open(browser);
  await page.goto(`${server.url}/terminal`);
  await page.click("[aria-label='Open a shell in flood']");
  await screen(page, "$");
  const id = page.url().split("/").at(-1);
  const length = async () => {
    const { execution } = await server.ask(`query($id: ID!) { execution(id: $id) { outputUrl } }`, { id });
    return Number((await fetch(server.url + execution.outputUrl, { method: "HEAD" })).headers.get("content-length"));
  };
  const trap = `trap "kill \\$! 2>/dev/null; echo ended \\$((1+1)); exit" INT`; // background processes of a shell ignore Ctrl-C

  // So much output that drawing takes longer than printing, and then endless output that only Ctrl-C ends.
  await page.keyboard.type(`clear; yes 'all work and no play' | head -c 52428800; sh -c '${trap}; yes & wait'\n`);
  // A terminal ends lines with two bytes: those 52 MB become 55.
  await until("the flood without end has begun", async () => (await length()) > 57e6);
  await page.click("text=Release the runner");
  await page.waitForSelector("dialog[open]");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  await page.focus(".xterm-helper-textarea");
  const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
  await page.keyboard.press("Control+c");
  await screen(page, "ended 2");

  t.diagnostic(`${Math.round((await length()) / 1e6)} MB were printed; heap ${Math.round(heap / 2 ** 20)} MiB`);
  assert.ok(heap < 200 * 2 ** 20, `the page takes ${heap} bytes`);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("keys typed while the page draws earlier output reach the program", async () => {
  const id = await started("stty -echo; yes & read line; kill $!; echo got $line", { terminal: { columns: 80, rows: 24 } }, "flood");
  await printed(id, "y"); // and it continues
  const page = await open(browser);
  await page.goto(`${server.url}/terminal/${id}`);
  await screen(page, "y");
  const line = "abcdefghijklmnopqrstuvwxyz".repeat(2);
  await page.focus(".xterm-helper-textarea");
  await page.keyboard.type(`${line}\n`);
  await screen(page, `got ${line}`);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("files are uploaded, edited, downloaded and deleted", async () => {
  const page = await shell();
  const file = path.join(tmpdir(), `rockpool-web-${process.pid}.txt`);
  await writeFile(file, "first line\n");
  const name = path.basename(file);
  await page.setInputFiles("input[type=file]", file);
  await page.waitForSelector(`.files >> text=${name}`);
  await rm(file);

  await page.click(`.files >> role=button[name='${name}']`);
  await page.click("dialog .cm-content");
  await page.keyboard.press("Control+End");
  await page.keyboard.type("second line");
  await page.click("dialog >> role=button[name=Save]");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  await page.click(".terminal-box");
  await page.keyboard.type(`clear; cat ${name}; echo; mkdir sub; ls -l ${name}\n`);
  await screen(page, "second line");
  await screen(page, "-rw-r--r--");

  const [download] = await Promise.all([page.waitForEvent("download"), page.click(`[aria-label='Download ${name}']`)]);
  assert.equal(await readFile(await download.path(), "utf8"), "first line\nsecond line");

  await page.click(".files >> text=sub/");
  await page.waitForSelector('text="/workspace/sub"');
  await page.click("[aria-label='Parent directory']");
  await page.click(`[aria-label='Delete ${name}']`);
  await page.waitForSelector(`dialog >> text="/workspace/${name}"`);
  await page.click("dialog >> role=button[name=Delete]");
  await page.waitForSelector(`.files >> text=${name}`, { state: "detached" });
  assert.deepEqual(page.mistakes, []);

  await page.click("text=Release the runner");
  await page.click("text=Release it");
  await page.waitForSelector("text=The runner and its files are gone");
  await page.context().close();
});

const closed = (page) => page.waitForSelector("dialog[open]", { state: "detached" });
const named = (page, name) => page.locator(`.files >> role=checkbox[name='Select ${name}']`);

test("files and directories are created, renamed and moved without replacing others", async () => {
  const page = await shell();
  await page.click("role=button[name='New file']");
  await page.click("dialog >> role=button[name='Create the file']");
  await page.waitForSelector("dialog >> [role=alert] >> text=Enter a name.");
  await page.fill("dialog input", "made.txt");
  await page.keyboard.press("Enter");
  // A new file opens in the editor.
  await page.click("dialog .cm-content");
  await page.keyboard.type("written");
  await page.click("dialog >> role=button[name=Save]");
  await closed(page);
  await page.click("role=button[name='New directory']");
  await page.fill("dialog input", "dir");
  await page.click("dialog >> role=button[name='Create the directory']");
  await closed(page);
  await page.waitForSelector(".files >> text=dir/");

  await page.click("role=button[name='New file']");
  await page.fill("dialog input", "dir");
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog >> text=dir already exists.");
  await page.click("dialog >> role=button[name=Cancel]");

  await page.click("[aria-label='Rename made.txt']");
  assert.equal(await page.inputValue("dialog input"), "made.txt");
  await page.fill("dialog input", "dir");
  await page.click("dialog >> role=button[name=Rename]");
  await page.waitForSelector("dialog >> text=already exists");
  await page.fill("dialog input", "dir/moved.txt");
  await page.click("dialog >> role=button[name=Rename]");
  await closed(page);
  await named(page, "made.txt").waitFor({ state: "detached" });
  await page.click("[aria-label='Rename dir']");
  await page.fill("dialog input", "*");
  await page.click("dialog >> role=button[name=Rename]");
  await closed(page);
  // A name is literal: nothing else is deleted with it.
  await page.click("[aria-label='Delete *']");
  await page.waitForSelector('dialog >> text="/workspace/*"');
  await page.click("dialog >> role=button[name='Keep it']");
  await page.click("[aria-label='Rename *']");
  await page.fill("dialog input", "place");
  await page.click("dialog >> role=button[name=Rename]");
  await closed(page);
  await named(page, "place").waitFor();

  // Programs in the runner may change files created by the page.
  await page.click(".terminal-box");
  await page.keyboard.type("clear; echo ' and appended' >>place/moved.txt && cat place/moved.txt\n");
  await screen(page, "written and appended");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("files are found, selected together, downloaded and deleted", async () => {
  const page = await shell();
  await page.keyboard.type("for i in 1 2 3 4 5; do echo text $i >file$i; done; mkdir sub\n");
  await named(page, "sub").waitFor();
  await page.fill("[aria-label='Find names']", "nowhere");
  await page.waitForSelector("text=None of the 6 names in /workspace contains “nowhere”.");
  assert.equal(await page.locator(".files li").count(), 0);
  await page.click("role=button[name='Show all']");
  await named(page, "file5").waitFor();
  await page.fill("[aria-label='Find names']", "FILE");
  await named(page, "sub").waitFor({ state: "detached" });

  await named(page, "file2").click();
  await named(page, "file4").click({ modifiers: ["Shift"] });
  await page.waitForSelector("text=3 selected");
  await named(page, "file3").click();
  await page.waitForSelector("text=2 selected");
  const downloads = [];
  page.on("download", (download) => downloads.push(download));
  await page.click("role=button[name='Download 2']");
  await until("both files came", () => downloads.length === 2);
  const contents = await Promise.all(downloads.map(async (download) => readFile(await download.path(), "utf8")));
  assert.deepEqual(contents.sort(), ["text 2\n", "text 4\n"]);

  await page.click("role=button[name='Delete 2 …']");
  await page.waitForSelector(`dialog >> text="/workspace/file4"`);
  await page.click("dialog >> role=button[name='Keep them']");
  await page.click("role=button[name='Delete 2 …']");
  await page.click("dialog >> role=button[name='Delete 2']");
  await closed(page);
  await named(page, "file2").waitFor({ state: "detached" });
  await named(page, "file4").waitFor({ state: "detached" });
  await named(page, "file1").waitFor();
  // Entries hidden by the filter aren't selected.
  await page.fill("[aria-label='Find names']", "file1");
  await named(page, "file3").waitFor({ state: "detached" });
  await page.click("[aria-label='Select all']");
  await page.click("role=button[name='Delete 1 …']");
  await page.click("dialog >> role=button[name=Delete]");
  await closed(page);
  await page.click("role=button[name='Show all']");
  await named(page, "file3").waitFor();
  await named(page, "sub").waitFor();
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("the same file is uploaded twice, and the second upload says that it replaced the first", async () => {
  const page = await shell();
  const file = path.join(tmpdir(), `rockpool-twice-${process.pid}.txt`);
  const name = path.basename(file);
  await writeFile(file, "first");
  await page.setInputFiles("input[type=file]", file);
  await page.waitForSelector(`text=${name} uploaded.`);
  await writeFile(file, "second!");
  await page.setInputFiles("input[type=file]", file);
  await page.waitForSelector(`text=${name} replaced the existing file.`);
  await rm(file);
  // Browsers report no change when the same file is chosen again, unless the input was cleared.
  assert.equal(await page.inputValue("input[type=file]"), "");
  await page.click(".terminal-box");
  await page.keyboard.type(`clear; cat ${name}\n`);
  await screen(page, "second!");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("after exit the page says that the runner is claimed and until when, starts a new shell in it, and releases it", async () => {
  const page = await open(browser, { bypassCSP: true });
  await page.goto(`${server.url}/terminal`);
  await page.click("[aria-label='Open a shell in shell']");
  await screen(page, "$");
  await page.keyboard.type("echo kept >kept; exit\n");
  await page.waitForSelector("text=/The runner is still claimed. If unused, it is released at .*\\d\\d:\\d\\d:\\d\\d/");
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 800 });
    assert.deepEqual(await judge(page, `an ended shell, ${width} px wide`), []);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
  const before = page.url();
  await page.click("role=button[name='New shell']");
  await page.waitForURL((url) => url.href !== before && url.pathname.startsWith("/terminal/"));
  await page.waitForSelector("text=The runner is still claimed", { state: "detached" });
  await screen(page, "$");
  await page.click(".terminal-box");
  await page.keyboard.type("cat kept; exit\n");
  await screen(page, "kept");
  await page.waitForSelector("text=The runner is still claimed");
  // Queries of files would prolong the claim. One may be under way.
  const asked = { Terminal: 0, Files: 0 };
  page.on("request", (request) => {
    const operation = /^query (\w+)/.exec(request.postDataJSON()?.query ?? "")?.[1];
    if (operation in asked) asked[operation]++;
  });
  await until("the page has looked at the claim", () => asked.Terminal > 3);
  assert.ok(asked.Files <= 1, `it looked at the files ${asked.Files} times`);
  const { execution } = await server.ask(`query($id: ID!) { execution(id: $id) { runner { claim { expiresAt } } } }`, { id: page.url().split("/").at(-1) });
  const clock = await page.evaluate((time) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(new Date(time)), execution.runner.claim.expiresAt);
  await page.waitForSelector(`text=released at ${clock}`);
  await page.click("role=button[name=Release]");
  await page.click("text=Release it");
  await page.waitForSelector("text=The runner and its files are gone");
  assert.equal(await page.locator("role=button[name='New shell']").count(), 0);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});
