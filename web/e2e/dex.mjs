// A real Dex, a provider of OpenID Connect, with the settings of the example in docs/guides/securing.md.
import { execFile, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { once } from "node:events";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { until } from "./wait.mjs";

const root = new URL("../../", import.meta.url).pathname;

/**
 * A free loopback address. On 127.0.0.1 another process could take the port first; this host is only the caller's.
 */
export async function freeAddress() {
  const host = [127, ...Array.from({ length: 3 }, () => randomInt(1, 255))].join(".");
  const free = createServer().listen(0, host);
  await once(free, "listening");
  const { port } = free.address();
  free.close();
  await once(free, "close");
  return `${host}:${port}`;
}

/** Starts Dex for a server at an address. Its only user is admin@example.com with the password "password". */
export async function startDex(server) {
  const { stdout } = await promisify(execFile)(path.join(root, "scripts/dex"));
  const address = await freeAddress();
  const example = /```yaml\n(issuer: .*?)```/s.exec(await readFile(path.join(root, "docs/guides/securing.md"), "utf8"))[1];
  const directory = await mkdtemp(path.join(tmpdir(), "rockpool-dex-"));
  const settings = path.join(directory, "dex.yaml");
  await writeFile(settings, example.replaceAll("127.0.0.1:5556", address).replaceAll("127.0.0.1:8080", server));
  const secret = path.join(directory, "secret");
  await writeFile(secret, /secret: (\S+)/.exec(example)[1], { mode: 0o600 });
  const child = spawn(stdout.trim(), ["serve", settings], { stdio: "ignore" });
  const ended = once(child, "exit");
  const issuer = `http://${address}/dex`;
  await until("Dex answers", () => fetch(`${issuer}/.well-known/openid-configuration`).then((response) => response.ok, () => false));
  return {
    args: ["--oidc-issuer", issuer, "--oidc-client-id", "rockpool", "--oidc-client-secret-file", secret, "--oidc-redirect-url", `http://${server}/auth/callback`, "--oidc-role-claim", "email", "--oidc-roles", "admin@example.com=ADMIN"],
    stop: async () => {
      child.kill();
      await ended;
      await rm(directory, { recursive: true, force: true });
    },
  };
}
