import { expect, test } from "vitest";
import { weigh } from "./budget.mjs";

/** What vite tells of two pages that share a part, one of which brings an editor later. */
function built({ script = 80_000, shared = 7_000, style = 6_000, more = {} } = {}) {
  const manifest = {
    "index.html": { file: "index.js", css: ["index.css"], imports: ["_shared.js"], dynamicImports: ["src/editor.tsx"], ...more },
    "graphiql.html": { file: "graphiql.js", imports: ["_shared.js"], dynamicImports: ["src/graphiql/explorer.tsx"] },
    "src/graphiql/explorer.tsx": { file: "explorer.js", name: "explorer", imports: ["_shared.js"] },
    "_shared.js": { file: "shared.js", name: "shared" },
    "src/editor.tsx": { file: "editor.js", name: "editor", imports: ["_codemirror.js"] },
    "_codemirror.js": { file: "codemirror.js", name: "codemirror" },
  };
  const sizes = new Map([["index.js", script], ["shared.js", shared], ["index.css", style], ["graphiql.js", 100_000], ["explorer.js", 400_000], ["editor.js", 9_000_000], ["codemirror.js", 9_000_000]]);
  return weigh(manifest, sizes).failures;
}

test("what comes later weighs nothing", () => expect(built()).toEqual([]));
test("too much JavaScript fails the build, that of shared parts too", () => {
  expect(built({ script: 214_000 })).toEqual(["index.html loads 221.0 kB of js, more than 220"]);
  expect(built({ shared: 101_000 })).toEqual(["src/graphiql/explorer.tsx loads 501.0 kB of js, more than 500"]);
});
test("so do too many styles", () => expect(built({ style: 20_100 })).toEqual(["index.html loads 20.1 kB of css, more than 20"]));
test("and an editor that isn't loaded on demand, however small", () => {
  expect(built({ more: { imports: ["_codemirror.js"] } })).toContain("index.html loads _codemirror.js at its start");
});
