// GraphiQL's page: its starter, subscriptions, theme, and the notice in narrow windows.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { judge } from "./axe.mjs";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start(), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** The text of an editor. The page itself has only the visible lines. */
const text = (page, editor) => page.evaluate((name) => globalThis.__MONACO?.editor.getModels().find((model) => model.uri.path.endsWith(name))?.getValue() ?? "", editor);
const shows = (page, editor, wanted) => until(`${editor} shows ${wanted}`, async () => (await text(page, editor)).includes(wanted));
const response = "response.json";
const variables = "variables.json";

/** Opens GraphiQL and waits until it is ready. */
async function explorer(options) {
  const page = await open(browser, options);
  await page.goto(`${server.url}/graphiql`);
  await page.waitForSelector(".graphiql-doc-explorer-title");
  await page.waitForSelector(".graphiql-execute-button[aria-haspopup=menu]"); // it has read the operations
  return page;
}

/** Runs an operation by two clicks. */
async function choose(page, operation) {
  await page.click(".graphiql-execute-button");
  await page.click(`role=menuitem[name='${operation}']`);
}

test("on an empty server Run comes first and fills in its id for the other operations", async () => {
  const page = await explorer();
  await page.click(".graphiql-execute-button");
  await page.waitForSelector("role=menuitem[name=Output]");
  assert.deepEqual(await page.locator("role=menuitem").allTextContents(), ["Run", "Watch", "Output"]);
  await page.click("role=menuitem[name=Run]");
  await shows(page, response, '"execution"');
  const id = /"id": "([^"]+)"/.exec(await text(page, response))[1];
  await shows(page, variables, `"id": "${id}"`);
  await choose(page, "Watch");
  // Events accumulate and are counted.
  await shows(page, response, '"outcome": "EXITED"');
  const all = await text(page, response);
  for (const line of ["line 1", "line 2", "line 3"]) assert.ok(all.includes(line), all);
  assert.equal(Number(/"received": (\d+)/.exec(all)[1]), all.match(/"cursor"/g).length);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("two clicks show the latest program's output, the docs are open, and a later visit uses the later program", async () => {
  await server.end(await server.run("echo the first"));
  const page = await explorer();
  await choose(page, "Output");
  await shows(page, response, "the first");

  await server.end(await server.run("echo the second"));
  await page.reload();
  await page.waitForSelector(".graphiql-execute-button[aria-haspopup=menu]");
  await choose(page, "Output");
  await shows(page, response, "the second");
  // Closed docs stay closed.
  await page.click("[aria-label='Hide Documentation Explorer']");
  await page.reload();
  await page.waitForSelector(".graphiql-execute-button[aria-haspopup=menu]");
  assert.equal(await page.locator(".graphiql-doc-explorer-title").count(), 0);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("a stopped subscription keeps its events", async () => {
  const page = await explorer();
  await page.click(".graphiql-tab-button >> text=Pools");
  await shows(page, "operation.graphql", "poolStatus");
  await page.waitForSelector(".graphiql-execute-button:not([aria-haspopup])");
  await page.click(".graphiql-execute-button");
  await shows(page, response, '"received": ');
  const received = async () => Number(/"received": (\d+)/.exec(await text(page, response))?.[1]);
  const before = await received();
  await server.ask(`mutation { putEnvironment(input: {id: "shell", poolSize: 3}) { created } }`);
  await until("a change is added to the events before", async () => (await received()) > before);
  await page.click("[aria-label^='Stop query']");
  await page.waitForSelector("[aria-label^='Execute query']");
  assert.ok((await received()) > before);
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

for (const colorScheme of ["light", "dark"]) {
  test(`GraphiQL has the dashboard's colours, ${colorScheme}, also with the other theme chosen`, async () => {
    const colours = (page) =>
      page.evaluate(() => {
        const rgb = (value) => value.match(/[\d.]+/g).slice(0, 3).map(Number);
        const probe = document.body.appendChild(document.createElement("div"));
        probe.style.color = "var(--ink)";
        const ink = rgb(getComputedStyle(probe).color);
        const container = rgb(getComputedStyle(document.querySelector(".graphiql-container")).color);
        probe.remove();
        return { ink, off: Math.max(...ink.map((value, at) => Math.abs(value - container[at]))), dark: document.body.classList.contains("graphiql-dark") };
      });
    const page = await explorer({ colorScheme, bypassCSP: true });
    const shown = (scheme) =>
      until(`it is ${scheme}`, async () => {
        const found = await colours(page);
        return found.off <= 2 && found.dark === (scheme === "dark") && found;
      });
    const system = await shown(colorScheme);
    // GraphiQL's own tabs contain a close button, which axe reports as nested.
    const found = (await judge(page, `GraphiQL, ${colorScheme}`)).filter((one) => !one.includes("nested-interactive"));
    assert.deepEqual(found, []);
    const other = colorScheme === "dark" ? "light" : "dark";
    await page.evaluate((theme) => localStorage.setItem("rockpool.theme", theme), other);
    await page.reload();
    await page.waitForSelector(".graphiql-execute-button");
    const chosen = await shown(other);
    assert.notDeepEqual(chosen.ink, system.ink);
    assert.deepEqual(page.mistakes, []);
    await page.context().close();
  });
}

test("at 390 px a notice links to the schema and the playground, until the window is wide enough", async () => {
  const page = await open(browser, { viewport: { width: 390, height: 844 }, bypassCSP: true });
  const scripts = [];
  page.on("request", (request) => /explorer|monaco/.test(request.url()) && scripts.push(request.url()));
  await page.goto(`${server.url}/graphiql`);
  await page.waitForSelector("text=GraphiQL needs a wider window");
  assert.deepEqual(await judge(page, "the notice, 390 px wide"), []);
  assert.deepEqual(scripts, []);
  const schema = await page.getAttribute("role=link[name='Read the schema']", "href");
  const answer = await fetch(new URL(schema, server.url));
  assert.match(answer.headers.get("content-type"), /^text\/plain/);
  assert.match(await answer.text(), /type Query \{/);
  await page.setViewportSize({ width: 844, height: 390 });
  await page.waitForSelector(".graphiql-execute-button");
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await page.locator(".graphiql-execute-button").count(), 1); // its contents aren't lost
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});
