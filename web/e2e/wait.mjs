// Waiting for conditions that no page shows.
import assert from "node:assert/strict";

/** ms after which a hanging test ends. No test asserts it. */
export const limit = 120_000;

/** Polls a condition until it returns a truthy value, and returns that. */
export async function until(what, holds) {
  for (const end = Date.now() + limit; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    const value = await holds();
    if (value) return value;
    assert.ok(Date.now() < end, `not after ${limit / 1_000} s: ${what}`);
  }
}
