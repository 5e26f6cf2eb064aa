// Compares the schema with the baseline that it must stay compatible with. Run as a program, it
// rewrites schema.baseline.graphqls: the current schema becomes the baseline.
import { readFile, writeFile } from "node:fs/promises";
import { argv, env, exit } from "node:process";
import { buildSchema, findBreakingChanges, lexicographicSortSchema, parse, print, printSchema, visit } from "graphql";

export const baselineFile = new URL("schema.baseline.graphqls", import.meta.url);

const heading = `# What clients may rely on. Later schemas must keep all of it; a test compares
# them. "make baseline" writes it; see docs/development.md.

`;

/** Reads a schema; undefined if there is no such file. */
export async function read(file) {
  try {
    return buildSchema(await readFile(file, "utf8"));
  } catch (error) {
    if (error.code === "ENOENT") return undefined;
    throw error;
  }
}

/** The schema that is served. */
export const served = () => read(new URL("../../schema.graphqls", import.meta.url));

/** A schema in one order and without its descriptions, as a baseline holds it. */
export function plain(schema) {
  const drop = (node) => (node.description ? { ...node, description: undefined } : undefined);
  return `${heading}${print(visit(parse(printSchema(lexicographicSortSchema(schema))), { enter: drop }))}\n`;
}

/** What clients that rely on one schema miss in another, in words. */
export const broken = (promised, schema) => findBreakingChanges(promised, schema).map((change) => change.description).sort();

if (argv[1] === new URL(import.meta.url).pathname) {
  const schema = await served();
  const promised = await read(baselineFile);
  const changes = promised ? broken(promised, schema) : [];
  if (changes.length > 0 && env.BREAKING !== "yes") {
    console.error(`this breaks what clients rely on:\n  ${changes.join("\n  ")}\nif it is meant: make baseline BREAKING=yes, and say why in the commit`);
    exit(1);
  }
  await writeFile(baselineFile, plain(schema));
}
