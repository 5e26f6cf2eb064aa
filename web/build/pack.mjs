// Compresses vite's output into dist, which the server embeds. It fails if a page would load more at its start than its
// budget allows.
import { readFile, readdir, rm, writeFile, mkdir } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import zlib from "node:zlib";
import { weigh } from "./budget.mjs";

const from = new URL("../.out/", import.meta.url).pathname;
const to = new URL("../dist/", import.meta.url).pathname;
const gzip = promisify(zlib.gzip);
const brotli = promisify(zlib.brotliCompress);

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
const { lines, failures } = weigh(manifest, sizes);
console.log(lines.join("\n"));
if (failures.length > 0) {
  console.error(failures.join("\n"));
  process.exit(1);
}
