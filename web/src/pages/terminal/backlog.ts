// Output that the screen hasn't drawn yet stays on the server. It is fetched as fast as the screen draws.

import type { LossCause } from "../../lib/loss";

/** Printed is a page of output. If it is full, there can be more. */
export interface Printed {
  chunks: readonly { text?: string }[];
  lostBytes: number;
  lostCause: LossCause | null;
  cursor: string;
}

/** Fetch queries about maxBytes of output after a cursor; without `text` only its amount. */
export type Fetch = (after: string | null, maxBytes: number, text: boolean) => Promise<Printed | undefined>;

const pageBytes = 128 << 10;
// Steps in bytes over output to skip. The last step is drawn.
const strides = [8 << 20, 1 << 20, 128 << 10];
// The largest chunk. Many are smaller, so a page that looks full can be the last.
const chunkBytes = 33_000;

const full = (page: Printed, maxBytes: number) => page.chunks.length >= Math.floor(maxBytes / chunkBytes);

/** Backlog draws output up to the present, and knows how far it has come. */
export class Backlog {
  cursor: string | null;
  private readonly fetch: Fetch;
  private skipping = false;
  private stopped = false;

  constructor(fetch: Fetch, cursor: string | null = null) {
    this.fetch = fetch;
    this.cursor = cursor;
  }

  /** Skips existing output except the end, until the screen has caught up. */
  skipToEnd() {
    this.skipping = true;
  }

  stop() {
    this.stopped = true;
  }

  /** Draws all output that exists when it returns. It calls `skipped` once if it left out some. */
  async drain(draw: (text: string) => Promise<void>, lost: (bytes: number, cause: LossCause) => void, skipped: () => void): Promise<void> {
    let reported = false;
    while (!this.stopped) {
      if (this.skipping && (await this.skip()) && !reported) {
        reported = true;
        skipped();
      }
      const page = await this.fetch(this.cursor, pageBytes, true);
      if (!page || this.stopped) return;
      if (page.lostBytes > 0) lost(page.lostBytes, page.lostCause ?? "UNKNOWN");
      for (const { text } of page.chunks) {
        if (this.stopped) return;
        await draw(text ?? "");
      }
      this.cursor = page.cursor;
      if (!full(page, pageBytes)) break;
    }
    this.skipping = false;
  }

  /** Moves the cursor forward to the last page. It returns whether it left out output. */
  private async skip(): Promise<boolean> {
    const from = this.cursor;
    for (const stride of strides) {
      // Continues at the last full page, which can be the end.
      let at = this.cursor;
      while (!this.stopped) {
        const page = await this.fetch(at, stride, false);
        if (!page || !full(page, stride)) break;
        this.cursor = at;
        at = page.cursor;
      }
    }
    return this.cursor !== from;
  }
}
