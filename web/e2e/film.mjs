// The README's animated picture: the playground runs a program, and a second page joins while it runs.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { open } from "./browser.mjs";

const program = `import sys
import time

loss = 2.0
for n in range(1, 11):
    loss *= 0.8
    print(f"batch {n:2}  \\033[32mok\\033[0m",
          f" loss {loss:.3f}", flush=True)
    if n == 4:
        print("warning: few samples",
              file=sys.stderr, flush=True)
    time.sleep(0.7)
print("\\033[1mdone\\033[0m")
`;

/**
 * Records a real run at its own speed, and writes it to file as an animated WebP. The server must run nothing else.
 */
export async function film(browser, server, file) {
  const frames = await mkdtemp(path.join(tmpdir(), "rockpool-film-"));
  try {
    const page = await open(browser, { colorScheme: "light", viewport: { width: 1040, height: 660 }, deviceScaleFactor: 1.5 });
    await page.goto(`${server.url}/playground?environment=python`);
    await page.click(".cm-content");
    await page.keyboard.press("Control+A");
    await page.keyboard.press("Delete");
    await page.keyboard.insertText(program);
    await page.focus("role=button[name=Run]");
    const camera = new Camera(frames);
    await camera.record(page, () => camera.seconds >= 1.2);
    await page.click("role=button[name=Run]");
    await camera.record(page, () => page.locator(".output-line >> text=batch  5").isVisible());
    const id = (await server.ask(`{ executions(states: [RUNNING], first: 1) { nodes { id } } }`)).executions.nodes[0].id;
    const { createGrant } = await server.ask(`mutation($in: CreateGrantInput!) { createGrant(input: $in) { token } }`, { in: { executionId: id, rights: ["WATCH"] } });
    await page.goto(`${server.url}/share/${id}#grant=${createGrant.token}`);
    await page.waitForSelector(".output-line >> text=batch  5"); // the page shows earlier output too
    await camera.record(page, () => page.locator(".output-line >> text=done").isVisible());
    const end = camera.seconds + 2.5;
    await camera.record(page, () => camera.seconds >= end);
    await page.context().close();
    await promisify(execFile)("img2webp", ["-loop", "0", "-min_size", "-kmax", "1000", ...camera.shots(), "-o", file]);
  } finally {
    await rm(frames, { recursive: true, force: true });
  }
}

/**
 * Takes pictures of a page as fast as it can, each with its time. It keeps only pictures that differ from the one
 * before.
 */
class Camera {
  #directory;
  #taken = [];
  #began = Date.now();

  constructor(directory) {
    this.#directory = directory;
  }

  /** How long it has recorded, without the time between two calls of record. */
  seconds = 0;

  /** Records until done returns true; it is called after each picture. */
  async record(page, done) {
    this.#began = Date.now() - this.seconds * 1000;
    do {
      const picture = await page.screenshot();
      this.seconds = (Date.now() - this.#began) / 1000;
      if (this.#taken.at(-1)?.picture.equals(picture)) continue;
      const name = path.join(this.#directory, `${this.#taken.length}.png`);
      await writeFile(name, picture);
      this.#taken.push({ name, picture, at: this.seconds });
    } while (!(await done()));
  }

  /** The arguments of img2webp: each picture with its duration, which ends when the next one was taken. */
  shots() {
    return this.#taken.flatMap(({ name, at }, n) => {
      const until = this.#taken[n + 1]?.at ?? this.seconds;
      return ["-d", String(Math.max(20, Math.round((until - at) * 1000))), "-lossless", "-m", "6", name];
    });
  }
}
