// A server with tokens: the rights of the roles, and links that share one execution with people without a token.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { after, before } from "node:test";
import { launch, open, test } from "./browser.mjs";
import { Server } from "./server.mjs";
import { until } from "./wait.mjs";

const first = "the-first-token-of-this-test-that-is-long-enough";
let server;
let browser;

before(async () => {
  [server, browser] = await Promise.all([Server.start({ token: first }), launch()]);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

/** A page in a separate browser context, with a token; "" for none. */
async function visit(token, address, options) {
  const page = await open(browser, options);
  if (token) await page.addInitScript((text) => sessionStorage.getItem("rockpool.token") ?? sessionStorage.setItem("rockpool.token", text), token);
  await page.goto(address.startsWith("http") ? address : server.url + address);
  return page;
}

/** Creates a token through the API. */
async function made(role, tenant = "default") {
  const { createToken } = await server.ask(`mutation($in: CreateTokenInput!) { createToken(input: $in) { secret token { id } } }`, { in: { name: `${role} of the test`, role, tenant } });
  return { secret: createToken.secret, id: createToken.token.id };
}
const revoke = (id) => server.ask(`mutation($id: ID!) { revokeToken(id: $id) { revoked } }`, { id });

/** The error code of a request with a token or a grant; "" for success. */
async function refusal(shown, query, variables) {
  const response = await fetch(`${server.url}/graphql`, { method: "POST", headers: { "Content-Type": "application/json", Authorization: `Bearer ${shown}` }, body: JSON.stringify({ query, variables }) });
  return (await response.json()).errors?.[0].extensions.code ?? "";
}

/** An execution that prints "begin", and then each line of its input. */
async function echoing() {
  const { claimRunner } = await server.ask(`mutation { claimRunner(input: {environmentId: "shell", waitFor: 60}) { runner { id } } }`);
  const runnerId = claimRunner.runner.id;
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, {
    in: { runnerId, shell: "echo begin; while read -r line; do echo got $line; done", stdin: true, timeLimit: 600 },
  });
  const { id } = startExecution.execution;
  return {
    id,
    runnerId,
    say: (text) => server.ask(`mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, { in: { executionId: id, text: `${text}\n` } }),
    end: () => server.ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: runnerId }),
  };
}

test("a token is created, shown once, used and revoked", async () => {
  const page = await visit(first, "/access");
  await page.waitForURL("**/access/tokens");
  const name = "<img src=x onerror=alert(1)> course";
  await page.click("role=button[name='New token']");
  await page.fill("dialog >> label:text-is('Name') ~ input", name);
  await page.selectOption("dialog >> label:text-is('Expires') ~ select", { label: "After a day" });
  await page.click("role=button[name='Create the token']");
  const secret = await page.inputValue("dialog >> label:text-is('The token') ~ .with-unit input");
  await page.waitForSelector("dialog >> text=The token is shown only once");
  await page.click("text=I have copied it");
  const row = page.locator("tbody tr", { hasText: name });
  await row.locator("text=Expires in").waitFor();
  assert.equal(await page.locator("main img").count(), 0);
  assert.ok(!(await page.content()).includes(secret), "the secret is shown again");
  assert.ok(!(await page.evaluate(() => JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)]))).includes(secret), "the secret is stored");

  const theirs = await visit(secret, "/runners");
  await theirs.waitForSelector("role=button[name='Claim a runner']");
  await row.locator("text=/now|ago/").first().waitFor();
  await row.locator("text=Revoke …").click();
  await page.click("role=button[name='Revoke it']");
  await row.locator("text=Revoked").waitFor();
  assert.deepEqual(await row.locator("button").allTextContents(), ["Revoke its tokens …"]);
  await theirs.waitForSelector("dialog >> text=The server rejected this token");
  assert.equal(await refusal(secret, "{ version }"), "UNAUTHENTICATED");
  assert.deepEqual(page.mistakes, []);
  await Promise.all([page, theirs].map((one) => one.context().close()));
});

test("a link shows one execution live, and gives no other right", async () => {
  const execution = await echoing();
  const client = await made("CLIENT");
  const owner = await visit(client.secret, `/executions/${execution.id}`);
  await owner.click("text=Share …");
  await owner.click("role=button[name='Create the link']");
  const link = await owner.inputValue("dialog >> label:text-is('The link') ~ .with-unit input");
  const grant = new URLSearchParams(new URL(link).hash.slice(1)).get("grant");
  assert.ok(grant.length > 100);

  const page = await open(browser, { acceptDownloads: true });
  const asked = [];
  page.context().on("request", (request) => asked.push(request));
  await page.goto(link);
  await page.waitForSelector(".output-line >> text=begin");
  await execution.say("this");
  await page.waitForSelector(".output-line >> text=got this");
  await page.waitForSelector(".tag >> text=Running");
  assert.equal(await page.locator("a, nav, dialog[open]").count(), 0, "it leads elsewhere");
  const buttons = await page.locator("button").allTextContents();
  assert.deepEqual(buttons.filter((text) => !["both", "stdout", "stderr", "Wrap", "Timestamps", "Copy all", "Download", "Jump to the end", ""].includes(text)), []);
  assert.equal(await page.locator("button:text-is('')").count(), 2); // the numbers of lines
  await page.click("role=button[name='Line 2']");
  await page.waitForSelector("button:text-is('Copy line 2')");
  assert.equal(page.url(), link);
  await page.fill("[aria-label='Search the output']", "GOT");
  await page.waitForSelector("role=status >> text=1 line");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("text=Download")]);
  assert.equal(await readFile(await download.path(), "utf8"), "begin\ngot this\n");
  assert.equal(await page.evaluate(() => JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])), "[[],[]]");
  assert.ok(asked.length > 5);
  for (const request of asked) {
    if (!request.isNavigationRequest()) assert.ok(!request.url().includes(grant), "the grant is in an address");
    assert.ok(!(request.headers().referer ?? "").includes("grant"), "the grant is in a Referer");
  }

  // The grant allows nothing else.
  const other = await echoing();
  for (const [query, code] of [
    [`{ runners { totalCount } }`, "FORBIDDEN"],
    [`{ environments { id } }`, "FORBIDDEN"],
    [`{ executions { totalCount } }`, "FORBIDDEN"],
    [`{ tokens { id } }`, "FORBIDDEN"],
    [`{ execution(id: "${other.id}") { state } }`, "EXECUTION_NOT_FOUND"],
    [`mutation { cancelExecution(id: "${execution.id}") { execution { state } } }`, "FORBIDDEN"],
    [`mutation { writeStdin(input: {executionId: "${execution.id}", text: "x"}) { offset } }`, "FORBIDDEN"],
    [`mutation { createGrant(input: {executionId: "${execution.id}", rights: [WATCH]}) { token } }`, "FORBIDDEN"],
  ]) {
    assert.equal(await refusal(grant, query), code, query);
  }
  const elsewhere = await page.context().newPage();
  await elsewhere.goto(`${server.url}/executions/${execution.id}`);
  await elsewhere.waitForSelector("dialog >> text=This server requires a token");
  const wrong = await page.context().newPage();
  await wrong.goto(link.replace(execution.id, other.id));
  await wrong.waitForSelector("text=The execution of this link is no longer kept");

  // The link ends with the token that created it, also while it is watched.
  await revoke(client.id);
  await page.waitForSelector("[role=alert] >> text=This link is no longer valid");
  assert.equal(await page.locator(".output-line >> text=got this").count(), 1);
  await page.reload();
  await page.waitForSelector(".empty >> text=This link is no longer valid");
  assert.deepEqual(page.mistakes.filter((text) => !/status of 401/.test(text)), []);
  await Promise.all([execution.end(), other.end()]);
  await Promise.all([page, owner].map((one) => one.context().close()));
});

test("an expired link says so, and doesn't use the viewer's token", async () => {
  const id = await server.run("echo over");
  await server.end(id);
  const { createGrant } = await server.ask(`mutation($in: CreateGrantInput!) { createGrant(input: $in) { token } }`, { in: { executionId: id, rights: ["WATCH"], expiresIn: 1 } });
  await until("the grant has expired", async () => (await refusal(createGrant.token, "{ version }")) === "UNAUTHENTICATED");
  const page = await visit(first, `/share/${id}#grant=${createGrant.token}`);
  await page.waitForSelector(".empty >> text=This link is no longer valid");
  await page.waitForSelector(".empty >> text=the grant has expired");
  assert.equal(await page.evaluate(() => sessionStorage.getItem("rockpool.token")), first, "the viewer's token is gone");
  await page.goto(`${server.url}/share/${id}`);
  await page.waitForSelector(".empty >> text=This link is incomplete");
  assert.equal(await page.locator(".output-line").count(), 0);
  await page.goto(`${server.url}/executions/${id}`);
  await page.waitForSelector(".output-line >> text=over");
  await page.context().close();
});

// The texts of controls that change something.
const changes = /Claim|Release|Shell|Signal|Cancel|Delete|Save|Undo|^Copy$|New |Create|Run|Send|End of input|Share|terminal|Revoke|Change|Remove|Add/i;

test("an observer sees everything of its tenant and no control that it can't use", async () => {
  const execution = await echoing();
  await execution.say("this");
  const { secret } = await made("OBSERVER");
  const page = await visit(secret, "/");
  const pages = {
    "/": ".pool-row >> text=shell",
    "/environments/shell": "h2:text-is('Configuration')",
    "/runners": ".table-row >> text=Claimed",
    "/executions": ".table-row >> text=Running",
    [`/executions/${execution.id}`]: ".output-line >> text=got this",
    "/batches": "text=No batches yet",
    "/access/tenants": "dl >> text=Weight",
    "/access/queue": "text=No waiting claims",
  };
  for (const [address, ready] of Object.entries(pages)) {
    await page.goto(server.url + address);
    await page.waitForSelector(ready);
    await page.waitForSelector(".server-version >> text=/Rockpool ./"); // the caller is known
    await page.waitForSelector(".pending", { state: "detached" });
    const offered = await page.locator("main button, main a.button").allTextContents();
    assert.deepEqual(offered.filter((text) => changes.test(text)), [], address);
    assert.equal(await page.locator("[role=alert]").count(), 0, address);
    assert.deepEqual(await page.locator(".nav a").allTextContents(), ["Overview", "Runners", "Executions", "Access", "GraphiQL"], address);
    assert.equal(await page.locator("text=allocated").count(), 0, address);
  }
  assert.deepEqual(await page.locator(".tabs a").allTextContents(), ["Tenants", "Queue", "You"]);
  for (const [address, need] of Object.entries({
    "/operations": "the role OBSERVER and a token for all tenants",
    "/terminal": "the role CLIENT",
    [`/terminal/${execution.id}`]: "the role CLIENT",
    "/new-environment": "the role OPERATOR",
    "/access/tokens": "the role ADMIN",
    "/access/audit": "the role ADMIN",
  })) {
    await page.goto(server.url + address);
    await page.waitForSelector(`.empty >> text=This page needs ${need}`);
    await page.waitForSelector("text=OBSERVER of tenant default");
  }
  assert.deepEqual(page.mistakes, []);
  await execution.end();
  await page.context().close();
});

test("a client of a tenant runs programs, and changes no environment", async () => {
  const { secret } = await made("CLIENT");
  const page = await visit(secret, "/environments/shell");
  await page.waitForSelector("text=Run a program");
  const offered = await page.locator("main button, main a.button").allTextContents();
  assert.deepEqual(offered.filter((text) => changes.test(text)), ["Run a program"]);
  assert.ok(await page.locator("label:text-is('Memory') ~ .with-unit input").isDisabled());
  await page.goto(`${server.url}/runners?environment=shell`);
  await page.click("text=Claim a runner");
  await page.click("role=button[name='Claim it']");
  const claimed = page.locator(".table-row", { hasText: "by=dashboard" });
  await claimed.locator("text=Release").click();
  await page.click("text=Release it");
  await claimed.waitFor({ state: "detached" });
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("a tenant is created, limited and deleted, and lists show tenants while there are several", async () => {
  const page = await visit(first, "/access/tenants");
  await page.click("role=button[name='New tenant']");
  await page.fill("dialog >> label:text-is('Name') ~ input", "Course 1");
  await page.fill("dialog >> label:text-is('Runners') ~ .with-unit input", "5");
  await page.click("role=button[name='Create the tenant']");
  await page.waitForSelector("dialog .wrong");
  await page.fill("dialog >> label:text-is('Name') ~ input", "course-1");
  await page.fill("dialog >> label:text-is('Executions') ~ .with-unit input", "2000000");
  await page.click("role=button[name='Create the tenant']");
  const wrong = page.locator("dialog .field", { hasText: "That haven't ended" }).locator(".wrong");
  await wrong.waitFor();
  await page.fill("dialog >> label:text-is('Executions') ~ .with-unit input", "0");
  await page.click("role=button[name='Create the tenant']");
  const card = page.locator(".card", { hasText: "course-1" });
  await card.locator("text=0 of 5").waitFor();
  await card.locator("text=0 of 0").waitFor();
  await card.locator("text=Change …").click();
  await page.fill("dialog >> label:text-is('Runners') ~ .with-unit input", "");
  await page.click("dialog >> role=button[name='Save']");
  await card.locator("text=0 of 5").waitFor({ state: "detached" });
  await page.click("nav >> text=Overview");
  await page.waitForSelector(".pool-row .owner >> text=default");
  await page.click("nav >> text=Access");
  await page.click(".tabs >> text=Tenants");
  await card.locator("text=Delete …").click();
  await page.click("dialog >> role=button[name='Delete course-1']");
  await card.waitFor({ state: "detached" });
  await page.click("nav >> text=Overview");
  await page.waitForSelector(".pool-row");
  await page.waitForSelector(".pool-row .owner", { state: "detached" });
  assert.deepEqual(page.mistakes, []);
  await page.context().close();
});

test("after the first token the server requires tokens, and the tab uses the new one", async () => {
  const openServer = await Server.start();
  try {
    const page = await visit("", `${openServer.url}/access/tokens`);
    await page.click("role=button[name='New token']");
    await page.waitForSelector("dialog >> text=Afterwards every caller needs a token");
    await page.fill("dialog >> label:text-is('Name') ~ input", "me");
    await page.click("role=button[name='Create the token']");
    await page.waitForSelector("dialog >> text=The server now requires a token");
    assert.equal(await page.locator("dialog[open]").count(), 1, "it asks for the token that it has just made");
    await Promise.all([page.waitForEvent("load"), page.click("text=I have copied it")]);
    await page.waitForSelector("tbody >> text=me");
    await page.click(".tabs >> text=You");
    await page.waitForSelector("dd >> text=ADMIN");
    const other = await visit("", openServer.url);
    await other.waitForSelector("dialog >> text=This server requires a token");
    assert.deepEqual(page.mistakes, []);
    await Promise.all([page, other].map((one) => one.context().close()));
  } finally {
    await openServer.stop();
  }
});

test("a page of another origin watches one execution with a grant, as examples/share does", async () => {
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const { port } = free.address();
  const origin = `http://127.0.0.1:${port}`;
  const rockpool = await Server.start({ token: first, args: ["--allowed-origins", origin] });
  free.close();
  await once(free, "close");
  const platform = spawn(process.execPath, [new URL("../../examples/share/server.mjs", import.meta.url).pathname], {
    env: { ...process.env, PORT: String(port), ROCKPOOL_SERVER: rockpool.url, ROCKPOOL_TOKEN: first },
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    await once(platform.stdout, "data");
    const page = await open(browser);
    const sent = [];
    page.on("request", (request) => sent.push(JSON.stringify([request.url(), request.headers()])));
    await page.goto(origin);
    await page.click("text=Run");
    await page.waitForSelector("pre >> text=EXITED, exit code 0");
    assert.equal(await page.textContent("pre"), `${Array.from({ length: 10 }, (_, n) => `line ${n}\n`).join("")}\nEXITED, exit code 0\n`);
    assert.ok(sent.some((request) => request.includes("Bearer rpg_")));
    assert.ok(!sent.some((request) => request.includes(first)), "the page has the platform's token");
    await page.context().close();
  } finally {
    platform.kill();
    await rockpool.stop();
  }
});
