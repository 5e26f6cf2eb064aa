/** What is shown of a subscription: how many events came, and the latest of them, the oldest first. */
export interface Accumulated {
  received: number;
  /** How many of them aren't shown any more. */
  leftOut?: number;
  events: unknown[];
  /** Why it ended, if it didn't end well. */
  errors?: unknown;
}

/** Bounds of what is shown. The latest event is shown, however long it is. */
export const most = { events: 200, characters: 200_000 };

const showEvery = 100; // ms: a flood of events is drawn ten times a second

/**
 * Collects what a subscription sends. Each answer has all that is shown until then. Events that come
 * during a pause are in the next answer together. An error ends it, and keeps what came before.
 */
export function accumulate(source: AsyncIterable<unknown>, pause = () => new Promise<void>((resolve) => setTimeout(resolve, showEvery))): AsyncIterableIterator<Accumulated> {
  const iterator = source[Symbol.asyncIterator]();
  const kept: { event: unknown; length: number }[] = [];
  let characters = 0;
  let received = 0;
  let errors: unknown;
  let news = false;
  let over = false;
  let begun = false;
  let wake = () => {};

  const add = (result: unknown) => {
    const event = eventOf(result);
    const { length } = JSON.stringify(event) ?? "";
    kept.push({ event, length });
    characters += length;
    received++;
    while (kept.length > 1 && (kept.length > most.events || characters > most.characters)) characters -= kept.shift()!.length;
    news = true;
    wake();
  };
  const pump = async () => {
    try {
      for (let next = await iterator.next(); !next.done && !over; next = await iterator.next()) add(next.value);
    } catch (error) {
      errors = error instanceof Error ? [{ message: error.message }] : error;
      news = true;
    }
    over = true;
    wake();
  };
  return {
    [Symbol.asyncIterator]() {
      return this;
    },
    async next() {
      if (!begun) {
        begun = true;
        void pump();
      } else await pause();
      while (!news && !over) await new Promise<void>((resolve) => (wake = resolve));
      if (!news) return { done: true, value: undefined };
      news = false;
      const leftOut = received - kept.length;
      return { done: false, value: { received, ...(leftOut > 0 && { leftOut }), events: kept.map(({ event }) => event), ...(errors !== undefined && { errors }) } };
    },
    async return() {
      over = true;
      news = false;
      wake();
      await iterator.return?.();
      return { done: true, value: undefined };
    },
  };
}

/** A result without the frame that all have in common. */
function eventOf(result: unknown): unknown {
  const { data, errors } = result as { data?: unknown; errors?: unknown };
  return errors === undefined && data !== undefined ? data : result;
}
