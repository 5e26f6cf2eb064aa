// The terminal and the files beside it.
import assert from "node:assert/strict";
import { readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { launch, open } from "./browser.mjs";
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

const screen = (page, text) => page.waitForFunction((wanted) => document.querySelector(".xterm-rows")?.textContent.replaceAll("\u00a0", " ").includes(wanted), text);

async function shell() {
  const page = await open(browser);
  await page.goto(`${server.url}/terminal`);
  await page.click("[aria-label='Open a shell in shell']");
  await screen(page, "$");
  return page;
}

test("a shell works, and is as it was after a reload and after a restart of the server", async () => {
  const page = await shell();
  await page.keyboard.type("echo one $((40+2))\n");
  await screen(page, "one 42");
  await page.reload();
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
  // The program is told, a moment later.
  await page.keyboard.type("clear; until [ $(stty size | cut -d' ' -f1) -lt 30 ]; do sleep 0.1; done; echo small $((1+1))\n");
  await screen(page, "small 2");

  await page.keyboard.type("printf '\\033[38;2;255;100;0mtrue colour\\033[0m'; exit 3\n");
  await page.waitForSelector("text=with exit status 3");
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
  await other.context().close();
});

test("an execution is replayed with its own timing, and exported", async () => {
  const id = await server.run("echo one; sleep 1.2; printf '\\033[31mtwo\\033[0m\\n'");
  await server.end(id);
  const page = await open(browser);
  await page.goto(`${server.url}/executions/${id}`);
  await page.click("text=Replay");
  await screen(page, "one");
  const began = Date.now();
  assert.doesNotMatch(await page.textContent(".xterm-rows"), /two/);
  await screen(page, "two");
  const took = Date.now() - began;
  assert.ok(took > 600, `it came after ${took} ms`);
  await page.waitForSelector("text=Play again");
  await page.fill("[aria-label=Position]", "0.5");
  await page.waitForFunction(() => !document.querySelector(".xterm-rows").textContent.includes("two"));
  await page.selectOption("label:has-text('Speed') select", "8");
  await page.click("role=button[name=Play]");
  await screen(page, "two");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Download the asciicast")]);
  assert.match(await readFile(await download.path(), "utf8"), /^\{"version":2,.*\n\[[\d.]+,"o","one\\r\\n"\]\n/);
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
  await page.click("dialog >> text=Save");
  await page.waitForSelector("dialog[open]", { state: "detached" });
  await page.click(".terminal-box");
  await page.keyboard.type(`clear; cat ${name}; echo; mkdir sub; ls -l ${name}\n`);
  await screen(page, "second line");
  await screen(page, "-rw-r--r--");

  const [download] = await Promise.all([page.waitForEvent("download"), page.click(`[aria-label='Download ${name}']`)]);
  assert.equal(await readFile(await download.path(), "utf8"), "first line\nsecond line");

  await page.click(".files >> text=sub/");
  await page.waitForSelector('text="/workspace/sub"');
  await page.click("[aria-label='The directory above']");
  await page.click(`[aria-label='Delete ${name}']`);
  await page.click("dialog >> role=button[name=Delete]");
  await page.waitForSelector(`.files >> text=${name}`, { state: "detached" });
  assert.deepEqual(page.mistakes, []);

  await page.click("text=Release the runner");
  await page.click("text=Release it");
  await page.waitForSelector("text=The runner is gone");
  await page.context().close();
});
