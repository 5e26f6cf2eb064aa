import type { ServerError } from "../../lib/ask";

export interface Written {
  offset: number;
}

/** Bytes; those of a repetition with the offset at which they belong, so that none is written twice. */
export type Write = (text: string, offset: number | undefined) => Promise<Written>;

const firstDelay = 200;
const longestDelay = 3_000;

/**
 * Feeds keys to a program in their order: what is typed while a call is on its
 * way goes with the next. A call that got no answer is repeated, and only that
 * names an offset: where others type too, what comes at an old one is left out.
 */
export class Typist {
  private waiting = "";
  private busy = false;
  private stopped = false;
  private offset: number | undefined;
  private readonly write: Write;
  private readonly failed: (error: ServerError) => void;

  constructor(write: Write, failed: (error: ServerError) => void) {
    this.write = write;
    this.failed = failed;
  }

  type(text: string) {
    this.waiting += text;
    void this.go();
  }

  stop() {
    this.stopped = true;
  }

  private async go() {
    if (this.busy) return;
    this.busy = true;
    let failures = 0; // since the last answer
    while (this.waiting !== "" && !this.stopped) {
      const text = this.waiting;
      this.waiting = "";
      try {
        this.offset = (await this.write(text, failures === 0 ? undefined : this.offset)).offset;
        failures = 0;
      } catch (error) {
        const { retryable } = error as ServerError;
        // Without an offset nobody knows whether it was written.
        if (!retryable || this.offset === undefined) {
          this.failed(error as ServerError);
          failures = 0;
          continue;
        }
        this.waiting = text + this.waiting;
        await new Promise((resolve) => setTimeout(resolve, Math.min(longestDelay, firstDelay * 2 ** failures++)));
      }
    }
    this.busy = false;
  }
}
