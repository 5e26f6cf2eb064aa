// A learning platform's server: it runs a program with the platform's token, and gives the
// browser a grant for that one execution. The browser then asks Rockpool directly.
//
//   ROCKPOOL_TOKEN=… node share/server.mjs     # http://127.0.0.1:3000
//   rockpool serve --allowed-origins http://127.0.0.1:3000 …
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

const rockpool = process.env.ROCKPOOL_SERVER ?? "http://127.0.0.1:8080";
const token = process.env.ROCKPOOL_TOKEN; // with the role CLIENT; it never leaves this server
const program = `import time
for n in range(10):
    print("line", n, flush=True)
    time.sleep(0.2)`;

async function ask(query, input) {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const response = await fetch(`${rockpool}/graphql`, { method: "POST", headers, body: JSON.stringify({ query, variables: { input } }) });
  const { data, errors } = await response.json();
  if (errors) throw new Error(`${errors[0].extensions.code}: ${errors[0].message}`);
  return data;
}

/** Runs the program. Returns only what the browser needs to watch it. */
async function start() {
  const { run } = await ask(`mutation($input: RunInput!) { run(input: $input) { execution { id } } }`, {
    environmentId: "python", waitFor: 30, command: ["python3", "main.py"], files: [{ path: "main.py", text: program }],
  });
  const executionId = run.execution.id;
  const { createGrant } = await ask(`mutation($input: CreateGrantInput!) { createGrant(input: $input) { token } }`, {
    executionId, rights: ["WATCH"], expiresIn: 600, // seconds
  });
  return { rockpool, executionId, grant: createGrant.token };
}

const files = { "/": ["page.html", "text/html"], "/watch.js": ["watch.js", "text/javascript"] };
const server = createServer(async (request, response) => {
  const [name, type] = files[request.url] ?? [];
  try {
    if (name) {
      response.setHeader("Content-Type", `${type}; charset=utf-8`).end(await readFile(new URL(name, import.meta.url)));
    } else if (request.method === "POST" && request.url === "/run") {
      // Authenticate the person here, and check that they may run this program.
      response.setHeader("Content-Type", "application/json").setHeader("Cache-Control", "no-store").end(JSON.stringify(await start()));
    } else response.writeHead(404).end();
  } catch (error) {
    console.error(error.message);
    response.writeHead(502).end("the program can't be run now");
  }
});
server.listen(process.env.PORT ?? 3000, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
