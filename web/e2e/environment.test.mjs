// The form of an environment, in a real browser.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { after, afterEach, before } from "node:test";
import { judge } from "./axe.mjs";
import { launch, open, test } from "./browser.mjs";
import { MuteRegistry } from "./registry.mjs";
import { Server } from "./server.mjs";

let server;
let browser;
let page;

before(async () => {
  [server, browser] = await Promise.all([Server.start({ args: ["--network"] }), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});
afterEach(async () => {
  const { mistakes } = page;
  await page.context().close();
  assert.deepEqual(mistakes, [], "mistakes on the pages");
});

async function visit(address, options, prepare = async () => {}) {
  page = await open(browser, options);
  page.puts = [];
  page.answers = 0;
  page.on("request", (request) => {
    if (request.postData()?.includes("mutation PutEnvironment")) page.puts.push(request.postDataJSON().variables.input);
  });
  page.on("response", (response) => {
    if (response.request().postData()?.includes("mutation PutEnvironment")) page.answers++;
  });
  await prepare();
  await page.goto(server.url + address);
  await page.waitForSelector("summary");
}

/** Makes the server report that the host has only a shell. */
const hasShellAlone = () =>
  page.route("**/graphql", async (route) => {
    if (!route.request().postData()?.includes("EnvironmentMachine")) return route.fallback();
    const answer = await route.fetch();
    const body = await answer.json();
    body.data.cluster.hostInterpreters = ["sh"];
    return route.fulfill({ response: answer, json: body });
  });
const field = (label) => page.locator(".field", { has: page.locator(`label:text-is("${label}")`) });
const input = (label) => field(label).locator("input:not([type=range])");
const advance = () => page.click("summary:text-is('Advanced')");
const create = () => page.click("text=Create the environment");
/** Saves a change that replaces no runner, and waits until it is stored. */
async function save() {
  const consequence = page.locator("text=No runner is replaced.");
  await consequence.waitFor(); // once the pool is known
  await page.click("role=button[name=Save]");
  await consequence.waitFor({ state: "detached" });
}
const stored = async (id) =>
  (await server.ask(`query($id: ID!) { environment(id: $id) { image poolSize resources { cpuMHz memoryMiB processes workspaceMiB } network { access } warm { interpreter } } cluster { coreMHz } }`, { id }));

test("a name, a language and a size are enough", async () => {
  await visit("/new-environment");
  assert.equal(await page.locator("fieldset .field:visible").count(), 4);
  await input("Name").fill("course");
  await page.waitForSelector("option:text-matches('Small: .* core')", { state: "attached" }); // the machine is known
  await field("Language").locator("select").selectOption("Python");
  await field("Size").locator("select").selectOption("Small");
  await create();
  await page.waitForURL("**/environments/course");
  await page.waitForSelector("text=2 idle");
  const { environment } = await stored("course");
  assert.deepEqual(environment, {
    image: "host",
    poolSize: 2,
    resources: { cpuMHz: 1000, memoryMiB: 128, processes: 64, workspaceMiB: 32 },
    network: { access: false },
    warm: { interpreter: "PYTHON" },
  });
  const { run } = await server.ask(`mutation { run(input: {environmentId: "course", waitFor: 60, command: ["python3", "-c", "print(6 * 7)"]}) { execution { id } } }`);
  assert.equal((await server.end(run.execution.id)).exitCode, 0);
});

test("the checkbox allows network access, and CPU is in cores", async (t) => {
  const forwarding = "/proc/sys/net/ipv4/ip_forward"; // environments with access need it
  if ((await readFile(forwarding, "utf8")).trim() === "0") {
    await writeFile(forwarding, "1");
    t.after(() => writeFile(forwarding, "0"));
  }
  await server.ask(`mutation { putEnvironment(input: {id: "network", poolSize: 0}) { created } }`);
  await visit("/environments/network");
  const box = page.getByRole("checkbox", { name: "Allow network access" });
  assert.equal(await box.isChecked(), false);
  await box.check();
  await page.waitForSelector("text=/One core is [\\d,]+ MHz/");
  await input("CPU").fill("0.25");
  await save();
  const { environment, cluster } = await stored("network");
  assert.deepEqual([environment.network.access, environment.resources.cpuMHz], [true, Math.round(cluster.coreMHz / 4)]);
  await page.reload();
  assert.equal(await box.isChecked(), true);
  await box.uncheck();
  await save();
  assert.equal((await stored("network")).environment.network.access, false);
});

test("a resource above the limit is refused at its field, and isn't sent", async () => {
  await visit("/new-environment");
  await input("Name").fill("large");
  await advance();
  await input("Memory").fill("1000000");
  const said = field("Memory").locator(".wrong");
  await said.waitFor();
  assert.match(await said.textContent(), /must be at most \d+ MiB: a larger runner doesn't fit/);
  await page.click("summary"); // a closed section opens again
  await create();
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-invalid") === "true");
  assert.ok(await said.isVisible());
  assert.equal(page.puts.length, 0);
  assert.equal((await stored("large")).environment, null);
  await input("Memory").fill("64");
  await said.waitFor({ state: "detached" });
  await create();
  await page.waitForURL("**/environments/large");

  // Put without the form, the environment is stored, and its pool says why no runner starts.
  await server.ask(`mutation { putEnvironment(input: {id: "larger", poolSize: 1, resources: {memoryMiB: 1000000}}) { created } }`);
  await page.goto(`${server.url}/environments/larger`);
  await page.waitForSelector("text=/memory exhausted: 1000000 MiB wanted, the machine has/");
});

test("an error of the server opens Advanced, and its field has the focus", async () => {
  await server.ask(`mutation { putEnvironment(input: {id: "refused", poolSize: 0}) { created } }`);
  await visit("/environments/refused");
  await input("Allowed networks").fill("10.0.0.0/99");
  await page.getByRole("checkbox", { name: "Allow network access" }).check();
  await page.click("summary");
  await page.click("role=button[name=Save]");
  await field("Allowed networks").locator(".wrong").waitFor();
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-invalid") === "true");
});

test("a language that the image host lacks gets an image that has it", async () => {
  await visit("/new-environment", {}, hasShellAlone);
  await page.waitForSelector("option:text-matches('Small: .* core')", { state: "attached" });
  await field("Language").locator("select").selectOption("Shell");
  assert.equal(await input("Image").inputValue(), "host");
  await field("Language").locator("select").selectOption("Go");
  assert.equal(await input("Image").inputValue(), "golang:1.24");
});

test("a missing Python of the image host shows a warning and an image that has it", async () => {
  await server.ask(`mutation { putEnvironment(input: {id: "bare", poolSize: 0, warm: {interpreter: PYTHON}}) { created } }`);
  await visit("/environments/bare", {}, hasShellAlone);
  await page.waitForSelector("text=The image host has no python3 on this machine: programs in Python won't start.");
  await page.click("text=Use python:3.13-slim");
  assert.equal(await input("Image").inputValue(), "python:3.13-slim");
  assert.equal(await page.locator("text=The image host has no").count(), 0);
});

test("unsaved changes ask before a link, back and a reload leave them", async () => {
  await visit("/new-environment");
  await page.click(".nav >> text=Runners"); // nothing was changed
  await page.waitForURL("**/runners");
  await page.click(".nav >> text=Overview");
  await page.waitForURL(`${server.url}/`);
  await page.click("text=New environment");
  await input("Name").fill("unsaved");
  const kept = async () => {
    await page.waitForSelector("dialog >> text=Your changes aren't saved.");
    await page.click("text=Stay");
    await page.waitForSelector("dialog[open]", { state: "detached" });
    assert.deepEqual([new URL(page.url()).pathname, await input("Name").inputValue()], ["/new-environment", "unsaved"]);
  };
  await page.click(".nav >> text=Runners");
  await kept();
  await page.evaluate(() => window.history.back());
  await kept();
  const [dialog] = await Promise.all([page.waitForEvent("dialog"), page.evaluate(() => void setTimeout(() => window.location.reload()))]);
  assert.equal(dialog.type(), "beforeunload");
  await dialog.dismiss();
  assert.equal(await input("Name").inputValue(), "unsaved");
  await page.evaluate(() => window.history.back());
  await page.click("role=button[name=Leave]");
  await page.waitForURL(`${server.url}/`);
  await page.waitForSelector(".pool-row");
  await page.click("text=New environment");
  await input("Name").fill("unsaved");
  await page.click(".nav >> text=Runners");
  await page.click("role=button[name=Leave]");
  await page.waitForURL("**/runners");
});

test("a silent registry is named before the response to the put", async () => {
  const mute = await MuteRegistry.start();
  try {
    await visit("/new-environment");
    await input("Name").fill("mute");
    await input("Image").fill(`${mute.host}/x:1`);
    await create();
    await page.waitForSelector(`text=The registry of the image ${mute.host}/x:1 hasn't responded yet`);
    assert.deepEqual([page.puts.length, page.answers], [1, 0]);
    await mute.stop();
    await page.waitForSelector(`[role=alert] >> text=/the registry ${mute.host.replaceAll(".", "\\.")} is unreachable/i`);
    assert.equal(await page.locator("text=hasn't responded yet").count(), 0);
    await page.click("text=Try again");
    await page.waitForFunction(() => document.querySelector("main .button.primary")?.disabled === false);
    assert.equal(page.puts.length, 2);
    page.mistakes = page.mistakes.filter((text) => !/status of 5\d\d/.test(text));
  } finally {
    await mute.stop();
  }
});

test("the form works by keyboard and at 390 px, and passes axe", async () => {
  await visit("/new-environment", { viewport: { width: 390, height: 844 }, bypassCSP: true });
  const found = await judge(page, "the form");
  await input("Name").focus();
  for (const name of ["Language", "Image", "Size"]) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.labels[0].textContent), name);
  }
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Advanced");
  await page.keyboard.press("Enter");
  await field("Memory").waitFor();
  await input("Memory").fill("1000000");
  await field("Memory").locator(".wrong").waitFor();
  found.push(...(await judge(page, "Advanced, with an error")));
  assert.deepEqual(found, []);
});
