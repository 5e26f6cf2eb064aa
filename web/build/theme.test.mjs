import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";

const read = (name) => readFileSync(path.join(import.meta.dirname, "../src", name), "utf8");

function rgb(hsl) {
  const [h, s, l] = hsl.split(",").map((part) => Number.parseFloat(part));
  const of = (n) => {
    const k = (n + h / 30) % 12;
    return (l / 100 - (s / 100) * Math.min(l / 100, 1 - l / 100) * Math.max(-1, Math.min(k - 3, 9 - k, 1))) * 255;
  };
  return [of(0), of(8), of(4)];
}

test.each(["light", "dark"])("GraphiQL's colours are the dashboard's, %s", (mode) => {
  const colours = new Map([...read("styles/colours.css").matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g)].map(([, name, light, dark]) => [name, mode === "light" ? light : dark]));
  const block = new RegExp(`body\\.graphiql-${mode}[^{]*{([^}]*)}`).exec(read("graphiql/graphiql.css"))[1];
  const all = [...block.matchAll(/--color-\w+: ([^;]+); \/\* --([\w-]+) \*\//g)];
  expect(all).toHaveLength(9);
  for (const [, hsl, name] of all) {
    const want = [1, 3, 5].map((at) => Number.parseInt(colours.get(name).slice(at, at + 2), 16));
    rgb(hsl).forEach((value, at) => expect(Math.abs(value - want[at]), `${name}: ${hsl}`).toBeLessThan(1.5));
  }
});
