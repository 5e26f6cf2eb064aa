import type { ServerError } from "../../lib/request";

/** Write writes a part of an input, and returns the offset after it, in bytes. */
export type Write = (part: { text: string; offset: number; close: boolean }) => Promise<number>;

export const longest = 65_536; // characters in a part, the most that a retry repeats
const pause = 1_000;

/**
 * feed writes a program's whole input in parts and closes it. It retries a part after a temporary error; the server
 * skips the bytes that it already has. It stops without an error if the program has ended, and throws every other
 * error.
 */
export async function feed(stdin: string, write: Write): Promise<void> {
  const parts = stdin.match(new RegExp(`[^]{1,${longest}}`, "gu")) ?? [];
  let offset = 0;
  for (let at = 0; at < parts.length; ) {
    try {
      offset = await write({ text: parts[at]!, offset, close: at === parts.length - 1 });
      at++;
    } catch (error) {
      const { code, retryable } = error as ServerError;
      if (["CONFLICT", "EXECUTION_NOT_FOUND", "RUNNER_GONE"].includes(code)) return; // the page shows the outcome
      if (!retryable && code !== "LIMIT_EXCEEDED") throw error; // LIMIT_EXCEEDED: the program doesn't read at the moment
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}
