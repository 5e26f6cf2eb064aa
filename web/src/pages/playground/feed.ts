import type { ServerError } from "../../lib/ask";

/** Writes a part of an input, and returns the offset after it, in bytes. */
export type Write = (part: { text: string; offset: number; close: boolean }) => Promise<number>;

export const longest = 65_536; // characters in a part: no more than that is sent again
const pause = 1_000;

/**
 * Gives a program all of its input, in parts, and closes it. A part that failed for now is sent
 * again: the server leaves out what it has of it. A program that has ended wants no more. Every
 * other error is thrown.
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
      if (["CONFLICT", "EXECUTION_NOT_FOUND", "RUNNER_GONE"].includes(code)) return; // how it ended is shown
      if (!retryable && code !== "LIMIT_EXCEEDED") throw error; // LIMIT_EXCEEDED: it doesn't read now
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }
}
