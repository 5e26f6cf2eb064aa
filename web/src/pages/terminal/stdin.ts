import type { ServerError } from "../../lib/request";

/** Written is the server's answer: the offset after the written bytes. */
export interface Written {
  offset: number;
}

/** Write writes text. A retry names the offset of the text, so that no byte is written twice. */
export type Write = (text: string, offset: number | undefined) => Promise<Written>;

const firstDelay = 200;
const longestDelay = 3_000;

/**
 * Typist sends keys to a program in order. Keys typed during a call go with the next one. It repeats a call without a
 * response. Only the repetition names an offset, because the server drops bytes at an old offset, also when others
 * type too.
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

  /** Sends waiting keys until none is left. Only one such loop runs. */
  private async go() {
    if (this.busy) return;
    this.busy = true;
    let failures = 0; // since the last success
    while (this.waiting !== "" && !this.stopped) {
      const text = this.waiting;
      this.waiting = "";
      try {
        this.offset = (await this.write(text, failures === 0 ? undefined : this.offset)).offset;
        failures = 0;
      } catch (error) {
        const { retryable } = error as ServerError;
        // Without an offset it is unknown whether the text was written.
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
