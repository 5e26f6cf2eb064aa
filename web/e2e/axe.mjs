// Checks pages with axe. Axe is an injected script, which the page's policy refuses: open the page with bypassCSP.
import { createRequire } from "node:module";
import { readFile } from "node:fs/promises";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];

/** Returns axe's findings on a page, and whether the page is wider than its window. */
export async function judge(page, name) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate((runOnly) => window.axe.run(document, { runOnly }), rules);
  const found = violations.map(({ id, impact, nodes }) => `${name}: ${id} (${impact}): ${nodes.map((node) => `${node.html.slice(0, 150)} ${node.any[0]?.message ?? ""}`).join(" | ")}`);
  const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (over > 0) found.push(`${name} is ${over} px too wide`);
  return found;
}
