/** The limits in kB of gzip for the files that each page loads at its start. */
const budgets = { "index.html": { js: 220, css: 20 }, "graphiql.html": { js: 220, css: 20 }, "src/graphiql/explorer.tsx": { js: 500, css: 380 } };
/** Modules that pages may load only on demand. */
const lazy = [/xterm/i, /codemirror/i, /monaco/i, /explorer/i];

/**
 * Weighs what pages load at their start, by vite's manifest and the compressed
 * size of each file. The failures say what is too much, or came too early.
 */
export function weigh(manifest, sizes) {
  const lines = [];
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
      lines.push(`${page}: ${kilobytes.toFixed(1)} kB of ${kind} at its start (gzip; at most ${budget[kind]})`);
      if (kilobytes > budget[kind]) failures.push(`${page} loads ${kilobytes.toFixed(1)} kB of ${kind}, more than ${budget[kind]}`);
    }
    if (page.endsWith(".html")) {
      for (const key of chunks) {
        if (lazy.some((name) => name.test(key) || name.test(manifest[key].name ?? ""))) failures.push(`${page} loads ${key} at its start`);
      }
    }
  }
  return { lines, failures };
}
