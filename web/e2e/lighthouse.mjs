// Runs Lighthouse on the overview. It fails with a score under 95 of 100.
import { spawnSync } from "node:child_process";
import { executablePath } from "./browser.mjs";
import { Server } from "./server.mjs";

const least = 0.95;
const server = await Server.start();
try {
  const args = ["--preset=desktop", "--only-categories=performance,accessibility,best-practices", "--chrome-flags=--headless --no-sandbox", "--output=json", "--quiet"];
  const { stdout, stderr, status } = spawnSync("npm", ["exec", "--yes", "--package=lighthouse@12.8.2", "--", "lighthouse", `${server.url}/`, ...args], {
    encoding: "utf8",
    maxBuffer: 64 << 20,
    env: { ...process.env, CHROME_PATH: executablePath },
  });
  if (status !== 0) throw new Error(stderr);
  const { categories, audits } = JSON.parse(stdout);
  for (const [name, { score }] of Object.entries(categories)) {
    console.log(`${name}: ${Math.round(score * 100)}`);
    if (!(score >= least)) process.exitCode = 1;
  }
  for (const id of ["first-contentful-paint", "largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift"]) console.log(`${id}: ${audits[id].displayValue}`);
} finally {
  await server.stop();
}
