import { expect, test } from "vitest";
import { Backlog, type Fetch } from "./backlog";

/** A server with n chunks, and more with each one drawn. */
function printer(chunks: number, chunk = 32 << 10) {
  const server = {
    chunks,
    asked: [] as [maxBytes: number, text: boolean][],
    fetch: (async (after, maxBytes, text) => {
      server.asked.push([maxBytes, text]);
      const from = Number(after ?? 0);
      const to = Math.min(server.chunks, from + Math.floor(maxBytes / chunk));
      const page = Array.from({ length: to - from }, (_, i) => (text ? { text: `${from + i} ` } : {}));
      return { chunks: page, lostBytes: from === 0 ? 5 : 0, lostCause: from === 0 ? "DAMAGED" : null, cursor: String(to) };
    }) as Fetch,
  };
  return server;
}

test("all output is drawn in order", async () => {
  const server = printer(1000);
  const backlog = new Backlog(server.fetch);
  let screen = "";
  const missing: unknown[] = [];
  await backlog.drain(
    async (text) => void (screen += text),
    (bytes, cause) => missing.push(bytes, cause),
    () => expect.unreachable(),
  );
  expect(screen).toBe(Array.from({ length: 1000 }, (_, i) => `${i} `).join(""));
  expect([backlog.cursor, missing]).toEqual(["1000", [5, "DAMAGED"]]);
  expect(server.asked.every(([bytes, text]) => text && bytes <= 1 << 20)).toBe(true);
});

test("skipToEnd skips to the end, and draws what is printed meanwhile", async () => {
  const server = printer(10_000);
  const backlog = new Backlog(server.fetch);
  const drawn: number[] = [];
  let skips = 0;
  await backlog.drain(
    async (text) => {
      drawn.push(Number(text));
      if (drawn.length === 3) backlog.skipToEnd();
      if (server.chunks < 12_000) server.chunks += 300;
    },
    () => {},
    () => skips++,
  );
  expect(drawn.slice(0, 3)).toEqual([0, 1, 2]);
  expect(drawn.at(-1)).toBe(server.chunks - 1);
  expect(drawn.length).toBeLessThan(100);
  expect(new Set(drawn).size).toBe(drawn.length);
  expect(skips).toBe(1);
  expect(server.asked.length).toBeLessThan(200);
});

test("skipToEnd skips to the end for all sizes of chunks and steps", async () => {
  for (let chunks = 3_000; chunks < 4_500; chunks += 7) {
    const server = printer(chunks, 8 << 10);
    const backlog = new Backlog(server.fetch);
    const drawn: number[] = [];
    await backlog.drain(
      async (text) => {
        drawn.push(Number(text));
        backlog.skipToEnd();
      },
      () => {},
      () => {},
    );
    expect(drawn.at(-1), `of ${chunks}`).toBe(chunks - 1);
    expect(drawn.length, `of ${chunks}`).toBeLessThan(100);
  }
});

test("skipToEnd before drain skips once", async () => {
  const server = printer(1000);
  const backlog = new Backlog(server.fetch);
  let drawn = 0;
  let skips = 0;
  const drain = () =>
    backlog.drain(
      async () => void drawn++,
      () => {},
      () => skips++,
    );
  backlog.skipToEnd();
  await drain();
  expect([skips, drawn < 100]).toEqual([1, true]);
  server.chunks = 2000;
  drawn = 0;
  await drain();
  expect([skips, drawn]).toEqual([1, 1000]);
});

test("skipToEnd with little output left skips nothing", async () => {
  const server = printer(3);
  const backlog = new Backlog(server.fetch, "1");
  const drawn: string[] = [];
  await backlog.drain(
    async (text) => {
      backlog.skipToEnd();
      drawn.push(text);
    },
    () => {},
    () => expect.unreachable(),
  );
  expect(drawn).toEqual(["1 ", "2 "]);
});

test("a stopped backlog draws nothing more", async () => {
  const server = printer(1000);
  const backlog = new Backlog(server.fetch);
  let drawn = 0;
  await backlog.drain(
    async () => {
      drawn++;
      backlog.stop();
    },
    () => {},
    () => {},
  );
  expect(drawn).toBe(1);
  expect(backlog.cursor).toBe(null);
});
