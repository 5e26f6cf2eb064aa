import { expect, test } from "vitest";
import { happened, readCast } from "./cast";
import { Player } from "./player";

const text = [
  `{"version":2,"width":50,"height":20,"timestamp":1}`,
  `[0.5,"o","a"]`,
  `[0.5,"o","b"]`,
  `[1,"r","80x24"]`,
  `[10,"o","c"]`,
  "",
].join("\n");

test("a recording is read", () => {
  expect(readCast(text)).toEqual({ columns: 50, rows: 20, duration: 10, events: [{ at: 0.5, text: "a" }, { at: 0.5, text: "b" }, { at: 10, text: "c" }] });
  expect(readCast(text, 2).events.map((event) => event.at)).toEqual([0.5, 0.5, 2.5]);
  expect(() => readCast(`{"version":1}`)).toThrow("no recording");
  expect(readCast(`{"version":2,"width":1e9}`)).toMatchObject({ columns: 120, rows: 32, duration: 0 });
});

test("what has happened by then", () => {
  const { events } = readCast(text);
  expect([0, 0.4, 0.5, 9, 10, 99].map((at) => happened(events, at))).toEqual([0, 0, 2, 2, 3, 3]);
});

test("seeking draws what is to be seen then, and nothing twice", () => {
  let screen = "";
  let resets = 0;
  const player = new Player(readCast(text), {
    reset: () => {
      screen = "";
      resets++;
    },
    write: (more) => (screen += more),
  });
  player.advance(0.4);
  expect(screen).toBe("");
  player.advance(0.2);
  player.advance(0.2);
  expect(screen).toBe("ab");
  player.seek(99);
  expect([screen, player.position, player.ended, resets]).toEqual(["abc", 10, true, 0]);
  player.seek(1);
  expect([screen, player.ended, resets]).toEqual(["ab", false, 1]);
  player.seek(-1);
  expect([screen, player.position]).toEqual(["", 0]);
});
