// What a program has printed and the screen hasn't drawn yet: it stays on the
// server, and is fetched as fast as it is drawn.

import type { LossCause } from "../../lib/loss";

/** A page of output; more may be there already if it is full. */
export interface Printed {
  chunks: readonly { text?: string }[];
  lostBytes: number;
  lostCause: LossCause | null;
  cursor: string;
}

/** Asks for the output after a cursor, of about so many bytes; with its text, or only for how much it is. */
export type Fetch = (after: string | null, maxBytes: number, text: boolean) => Promise<Printed | undefined>;

const pageBytes = 128 << 10;
// Steps over what nobody wants to see; the last of them is drawn.
const strides = [8 << 20, 1 << 20, 128 << 10];
// No chunk is larger. Many are smaller, so a page that looks full may be the last.
const chunkBytes = 33_000;

const full = (page: Printed, maxBytes: number) => page.chunks.length >= Math.floor(maxBytes / chunkBytes);

/** How far the output has been drawn. */
export class Backlog {
  cursor: string | null;
  private readonly fetch: Fetch;
  private hurried = false;
  private stopped = false;

  constructor(fetch: Fetch, cursor: string | null = null) {
    this.fetch = fetch;
    this.cursor = cursor;
  }

  /** Leaves out what is there, but the last of it, until all is drawn. */
  hurry() {
    this.hurried = true;
  }

  stop() {
    this.stopped = true;
  }

  /** Has all drawn that was printed until it comes back; `skipped` hears that something was left out. */
  async drain(draw: (text: string) => Promise<void>, lost: (bytes: number, cause: LossCause) => void, skipped: () => void): Promise<void> {
    let told = false;
    while (!this.stopped) {
      if (this.hurried && (await this.skip()) && !told) {
        told = true;
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
    this.hurried = false;
  }

  private async skip(): Promise<boolean> {
    const from = this.cursor;
    for (const stride of strides) {
      // From the last full page on, since it may be the very last.
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
