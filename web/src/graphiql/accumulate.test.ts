import { expect, test, vi } from "vitest";
import { accumulate, most, type Accumulated } from "./accumulate";

const atOnce = () => Promise.resolve();
const result = (n: unknown) => ({ data: { n } });

async function all(source: AsyncIterable<unknown>): Promise<Accumulated[]> {
  const answers: Accumulated[] = [];
  for await (const answer of accumulate(source, atOnce)) answers.push(answer);
  return answers;
}

test("events accumulate and are counted", async () => {
  const sent: number[] = [];
  let wake = () => {};
  const events = accumulate(
    (async function* () {
      for (;;) {
        while (sent.length === 0) await new Promise<void>((resolve) => (wake = resolve));
        yield result(sent.shift());
      }
    })(),
    atOnce,
  );
  for (const [n, want] of [[1, [1]], [2, [1, 2]], [3, [1, 2, 3]]] as const) {
    sent.push(n);
    wake();
    expect((await events.next()).value).toEqual({ received: n, events: want.map((n) => ({ n })) });
  }
});

test("only the latest events are kept, and the others are counted", async () => {
  const n = most.events + 50;
  const last = (await all((async function* () {
    for (let i = 1; i <= n; i++) yield result(i);
  })())).at(-1)!;
  expect(last).toMatchObject({ received: n, leftOut: 50 });
  expect(last.events).toHaveLength(most.events);
  expect(last.events.at(-1)).toEqual({ n });
});

test("events are kept up to a total size, the latest always", async () => {
  const long = "x".repeat(most.characters / 2);
  const last = (await all((async function* () {
    yield result(long);
    yield result(long);
    yield result(long + long);
  })())).at(-1)!;
  expect(last).toEqual({ received: 3, leftOut: 2, events: [{ n: long + long }] });
});

test("an error ends the subscription and keeps the events", async () => {
  const answers = await all((async function* () {
    yield result(1);
    throw new Error("Socket closed");
  })());
  expect(answers.at(-1)).toEqual({ received: 1, events: [{ n: 1 }], errors: [{ message: "Socket closed" }] });
});

test("a result with data and errors is shown whole", async () => {
  const odd = { data: { n: 1 }, errors: [{ message: "half" }] };
  expect((await all((async function* () { yield odd; })())).at(-1)!.events).toEqual([odd]);
});

test("return ends the iteration and the subscription immediately", async () => {
  const ended = vi.fn();
  const source = { next: () => new Promise<never>(() => {}), return: async () => (ended(), { done: true as const, value: undefined }) };
  const events = accumulate({ [Symbol.asyncIterator]: () => source }, atOnce);
  const waiting = events.next();
  await events.return!();
  expect((await waiting).done).toBe(true);
  expect(ended).toHaveBeenCalledOnce();
});
