import { expect, test } from "vitest";
import { weigh } from "./budget.mjs";

/** Vite's manifest of two pages with a shared chunk; one of them loads an editor on demand. */
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

test("chunks loaded on demand don't count", () => expect(built()).toEqual([]));
test("too much JavaScript fails the build, also in shared chunks", () => {
  expect(built({ script: 214_000 })).toEqual(["index.html loads 221.0 kB of js, more than 220"]);
  expect(built({ shared: 101_000 })).toEqual(["src/graphiql/explorer.tsx loads 501.0 kB of js, more than 500"]);
});
test("too many styles fail the build", () => expect(built({ style: 20_100 })).toEqual(["index.html loads 20.1 kB of css, more than 20"]));
test("an editor that isn't loaded on demand fails the build, however small", () => {
  expect(built({ more: { imports: ["_codemirror.js"] } })).toContain("index.html loads _codemirror.js at its start");
});
