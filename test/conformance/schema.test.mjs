import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { buildClientSchema, buildSchema, getIntrospectionQuery } from "graphql";
import { baselineFile, broken, plain, read, served } from "./schema.mjs";
import { ask, serve } from "./server.mjs";

/** Compares texts, and shows the first line that differs. */
function same(got, want, advice = "") {
  const [some, others] = [got, want].map((text) => text.split("\n"));
  const at = some.findIndex((line, i) => line !== others[i]);
  if (got !== want) assert.fail(`${advice}Line ${at + 1} is ${some.at(at)}, and not ${others.at(at)}`);
}

let server;
before(async () => {
  server = await serve();
});
after(() => server?.stop());

test("what the server says of itself is schema.graphqls", async () => {
  const introspected = plain(buildClientSchema(await ask(server.url, getIntrospectionQuery())));
  // gqlgen adds @defer to every schema; deferring nothing is a valid use of it.
  same(introspected.replace(/^directive @defer.*\n\n/m, ""), plain(await served()));
});

test("the schema keeps what clients rely on", async () => {
  const schema = await served();
  assert.deepEqual(broken(await read(baselineFile), schema), [], "if it is meant: make baseline BREAKING=yes, and say why in the commit");
  same(plain(schema), await readFile(baselineFile, "utf8"), "the schema has what the baseline doesn't promise: make baseline, and commit what it changes. ");
});

// The contract is next to the repository, where the project is worked on.
test("the schema keeps the contract", async () => {
  const contract = await read(new URL("../../../shared/api.graphqls", import.meta.url));
  if (contract) assert.deepEqual(broken(contract, await served()), [], "the schema misses something of the contract");
});

// Tests the comparison itself: each of these changes breaks some client.
test("breaking changes are found", async () => {
  const text = await readFile(baselineFile, "utf8");
  const changes = {
    "a field goes": ["  goneReason: GoneReason\n", ""],
    "a field may be null": ["outputLimit: Int64!", "outputLimit: Int64"],
    "a field has another type": ["exitCode: Int\n", "exitCode: String\n"],
    "an argument goes": ["execution(id: ID!, waitFor: Int)", "execution(id: ID!)"],
    "an argument is needed": ["runner(id: ID!)", "runner(id: ID!, claim: ID!)"],
    "an argument that could be null can't": ["after: Cursor,", "after: Cursor!,"],
    "an input's field is needed": ["waitFor: Int\n}", "waitFor: Int!\n}"],
    "an input's new field is needed": ["input LabelInput {", "input LabelInput {\n  more: Int!"],
    "an enum's value goes": ["  MEMORY_LIMIT\n", ""],
    "a type isn't of its interface": ["type ExecutionOutputLost implements ExecutionEvent", "type ExecutionOutputLost"],
  };
  for (const [name, [from, to]] of Object.entries(changes)) {
    assert.ok(text.includes(from), `${name}: nothing to change`);
    assert.equal(broken(buildSchema(text), buildSchema(text.replace(from, to))).length > 0, true, name);
  }
  assert.deepEqual(broken(buildSchema(text), buildSchema(text.replace("type Query {", "type Query {\n  more: Int"))), []);
});
