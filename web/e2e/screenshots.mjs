// Writes screenshots of every page, light, dark and narrow, and the animated one of the README, to docs/screenshots.
import { mkdir } from "node:fs/promises";
import { launch, open } from "./browser.mjs";
import { film } from "./film.mjs";
import { sample } from "./sample.mjs";
import { Server } from "./server.mjs";

const to = process.env.SCREENSHOTS ?? new URL("../../docs/screenshots/", import.meta.url).pathname;
await mkdir(to, { recursive: true });
const [server, browser] = await Promise.all([Server.start(), launch()]);
try {
  await film(browser, server, `${to}/film.webp`);
  // Waits for history in the charts: samples are ten seconds apart.
  const until = Date.now() + 120_000;
  while (!process.env.QUICK && Date.now() < until) {
    for (let i = 0; i < 1 + Math.random() * 4; i++) await server.end(await server.run("sleep 0.2", ["shell", "python", "node"][i % 3]));
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 2_000));
  }
  const pages = await sample(server);
  const looks = { light: { colorScheme: "light" }, dark: { colorScheme: "dark" }, narrow: { colorScheme: "light", viewport: { width: 360, height: 780 } } };
  for (const [look, options] of Object.entries(looks)) {
    const page = await open(browser, options);
    for (const { name, address, ready } of pages) {
      await page.goto(server.url + address);
      await page.waitForSelector(ready);
      if (name === "playground") {
        await page.click("role=button[name=Run]");
        await page.waitForSelector(".tag >> text=Succeeded");
      }
      if (name === "terminal") await page.waitForFunction(() => document.querySelector(".xterm-rows")?.textContent.includes("main.sh"));
      await page.screenshot({ path: `${to}/${name}-${look}.png` });
    }
    await page.context().close();
  }
} finally {
  await browser.close();
  await server.stop();
}
