/** Accumulated is the shown part of a subscription: the number of events, and the latest ones, oldest first. */
export interface Accumulated {
  received: number;
  /** The number of older events that are no longer shown. */
  leftOut?: number;
  events: unknown[];
  /** The error that ended it, if any. */
  errors?: unknown;
}

/** most limits the shown events. The latest event is always shown. */
export const most = { events: 200, characters: 200_000 };

const showEvery = 100; // ms: many events are drawn at most ten times a second

/**
 * accumulate collects a subscription's events. Each value has all shown events. Events that arrive during a pause
 * are in the next value together. An error ends the iteration and keeps the events.
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

/** eventOf returns a result's data, or the whole result if it has errors. */
function eventOf(result: unknown): unknown {
  const { data, errors } = result as { data?: unknown; errors?: unknown };
  return errors === undefined && data !== undefined ? data : result;
}
