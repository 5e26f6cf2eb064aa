// Compresses what vite built into dist, which the server embeds, and fails
// where a page would load more at its start than it may.
import { readFile, readdir, rm, writeFile, mkdir } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import zlib from "node:zlib";

const from = new URL("../.out/", import.meta.url).pathname;
const to = new URL("../dist/", import.meta.url).pathname;
const gzip = promisify(zlib.gzip);
const brotli = promisify(zlib.brotliCompress);

/** kB of gzip that a page may load before it shows something. */
const budgets = { "index.html": { js: 220, css: 20 }, "graphiql.html": { js: 500, css: 380 } };
/** What comes only when a page asks for it. */
const lazy = [/xterm/i, /codemirror/i, /monaco/i, /graphiql/i];

for (const entry of await readdir(to)) {
  if (entry !== "README.md" && entry !== ".gitignore") await rm(path.join(to, entry), { recursive: true });
}

const sizes = new Map();
for (const entry of await readdir(from, { recursive: true, withFileTypes: true })) {
  const name = path.relative(from, path.join(entry.parentPath, entry.name));
  if (!entry.isFile() || name.startsWith(".vite")) continue;
  const bytes = await readFile(path.join(from, name));
  const [gz, br] = await Promise.all([
    gzip(bytes, { level: 9 }),
    brotli(bytes, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 11, [zlib.constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }),
  ]);
  await mkdir(path.dirname(path.join(to, name)), { recursive: true });
  await writeFile(path.join(to, `${name}.gz`), gz);
  await writeFile(path.join(to, `${name}.br`), br);
  sizes.set(name, gz.length);
}

const manifest = JSON.parse(await readFile(path.join(from, ".vite/manifest.json"), "utf8"));
const failures = [];
for (const [page, budget] of Object.entries(budgets)) {
  const chunks = new Set();
  const visit = (key) => {
    if (chunks.has(key)) return;
    chunks.add(key);
    for (const next of manifest[key].imports ?? []) visit(next);
  };
  visit(page);
  const js = new Set([...chunks].map((key) => manifest[key].file).filter((file) => file.endsWith(".js")));
  const css = new Set([...chunks].flatMap((key) => manifest[key].css ?? []));
  for (const [kind, files] of Object.entries({ js, css })) {
    const kilobytes = [...files].reduce((sum, file) => sum + sizes.get(file), 0) / 1000;
    console.log(`${page}: ${kilobytes.toFixed(1)} kB of ${kind} at its start (gzip; at most ${budget[kind]})`);
    if (kilobytes > budget[kind]) failures.push(`${page} loads ${kilobytes.toFixed(1)} kB of ${kind}, more than ${budget[kind]}`);
  }
  if (page === "index.html") {
    for (const key of chunks) {
      if (lazy.some((name) => name.test(key) || name.test(manifest[key].name ?? ""))) failures.push(`${page} loads ${key} at its start`);
    }
  }
}
if (failures.length > 0) {
  console.error(failures.join("\n"));
  process.exit(1);
}
