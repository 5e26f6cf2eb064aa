// A registry on loopback with one image of one layer. It sends half of the layer, and the rest after release.
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as listen } from "node:net";

const digest = (bytes) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** A tar archive of one file. */
function archive(name, content) {
  const header = Buffer.alloc(512);
  const octal = (value, at, length) => header.write(value.toString(8).padStart(length - 1, "0"), at);
  header.write(name);
  octal(0o644, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(content.length, 124, 12);
  octal(1_000_000_000, 136, 12);
  header.write("        0", 148); // the sum counts as blanks
  header.write("ustar\x0000", 257);
  octal(header.reduce((sum, byte) => sum + byte, 0), 148, 7);
  return Buffer.concat([header, content, Buffer.alloc(1024 + ((512 - (content.length % 512)) % 512))]);
}

export class Registry {
  #server;
  #layer = archive("file", Buffer.alloc(4 << 20, "x"));
  #released;
  #rest = new Promise((resolve) => (this.#released = resolve));

  static async start() {
    const registry = new Registry();
    registry.#server = createServer((request, response) => registry.#serve(request, response)).listen(0, "127.0.0.1");
    await once(registry.#server, "listening");
    return registry;
  }

  get reference() {
    return `127.0.0.1:${this.#server.address().port}/image:1`;
  }

  /** Sends the rest of the layer. */
  release() {
    this.#released();
  }

  async #serve(request, response) {
    const architecture = { x64: "amd64" }[process.arch] ?? process.arch;
    const config = JSON.stringify({ os: "linux", architecture, rootfs: { type: "layers", diff_ids: [digest(this.#layer)] } });
    const part = (mediaType, bytes) => ({ mediaType, size: bytes.length, digest: digest(bytes) });
    const mediaType = "application/vnd.oci.image.manifest.v1+json";
    if (request.url.includes("/manifests/")) {
      const layers = [part("application/vnd.oci.image.layer.v1.tar", this.#layer)];
      response.writeHead(200, { "Content-Type": mediaType });
      response.end(JSON.stringify({ schemaVersion: 2, mediaType, config: part("application/vnd.oci.image.config.v1+json", config), layers }));
    } else if (request.url.endsWith(digest(config))) {
      response.end(config);
    } else if (request.url.endsWith(digest(this.#layer))) {
      response.writeHead(200, { "Content-Length": this.#layer.length });
      response.write(this.#layer.subarray(0, 2 << 20));
      await this.#rest;
      response.end(this.#layer.subarray(2 << 20));
    } else {
      response.end(); // there is nothing to log in to
    }
  }

  async stop() {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}

/** A registry on loopback that accepts connections and never responds. */
export class MuteRegistry {
  #server;
  #connections = new Set();

  static async start() {
    const mute = new MuteRegistry();
    mute.#server = listen((connection) => {
      mute.#connections.add(connection.on("error", () => {})); // its peer may hang up
    }).listen(0, "127.0.0.1");
    await once(mute.#server, "listening");
    mute.host = `127.0.0.1:${mute.#server.address().port}`;
    return mute;
  }

  /** Closes all connections, and accepts no more. */
  async stop() {
    if (!this.#server.listening) return;
    this.#server.close();
    for (const connection of this.#connections) connection.destroy();
    await once(this.#server, "close");
  }
}
