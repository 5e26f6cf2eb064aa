import { expect, test } from "vitest";
import { eventsUntil, momentOf, positionOf, readCast, readMoment, type Size } from "./cast";
import { Painter } from "./painter";
import { Player } from "./player";

const text = [
  `{"version":2,"width":50,"height":20,"timestamp":1}`,
  `[0.5,"o","a"]`,
  `[0.5,"o","b"]`,
  `[1,"r","80x24"]`,
  `[1,"r","0x24"]`,
  `[1,"r","80x99999"]`,
  `[1,"i","typed"]`,
  `[10,"o","c"]`,
  "",
].join("\n");

test("a recording is parsed", () => {
  expect(readCast(text)).toEqual({ columns: 50, rows: 20, duration: 10, events: [{ at: 0.5, text: "a" }, { at: 0.5, text: "b" }, { at: 1, columns: 80, rows: 24 }, { at: 10, text: "c" }], recorded: [0.5, 0.5, 1, 10] });
  expect(readCast(text, 2).events.map((event) => event.at)).toEqual([0.5, 0.5, 1, 3]);
  expect(readCast(`{"version":2}\n[1,"m","bytes missing here: \\u001b]0;7"]`).events).toEqual([{ at: 1, text: "\r\n\x1b[33m[bytes missing here: ]\x1b[0m\r\n" }]);
  expect(() => readCast(`{"version":1}`)).toThrow("asciicast");
  expect(readCast(`{"version":2,"width":1e9}`)).toMatchObject({ columns: 120, rows: 32, duration: 0 });
});

test("times are converted with shortened pauses", () => {
  const brief = readCast(text, 2); // 0.5, 0.5, 1, and 3 for 10
  const moments = [0, 0.2, 0.5, 0.75, 1, 2, 7, 10, 99];
  expect(moments.map((moment) => positionOf(brief, moment))).toEqual([0, 0.2, 0.5, 0.75, 1, 2, 3, 3, 3]);
  expect(moments.map((moment) => positionOf(readCast(text), moment))).toEqual([0, 0.2, 0.5, 0.75, 1, 2, 7, 10, 10]);
  for (const position of [0, 0.2, 0.5, 0.75, 1, 2.5, 3]) expect(positionOf(brief, momentOf(brief, position))).toBe(position);
  expect(momentOf(brief, 3)).toBe(10);
  expect(positionOf(readCast(`{"version":2}`), 5)).toBe(0);
});

test("a fragment contains a time", () => {
  expect(["#t=12.5", "#t=0", "#t=", "#t=-1", "#t=1e9", "", "#L3"].map(readMoment)).toEqual([12.5, 0, undefined, undefined, undefined, undefined, undefined]);
});

test("eventsUntil counts the events up to a time", () => {
  const { events } = readCast(text);
  expect([0, 0.4, 0.5, 9, 10, 99].map((at) => eventsUntil(events, at))).toEqual([0, 0, 2, 3, 4, 4]);
});

test("seeking draws the screen of that position, in its size, without duplicates", () => {
  let screen = "";
  const sized = ({ columns, rows }: Size) => `<${columns}x${rows}>`;
  let resets = 0;
  const player = new Player(readCast(text), {
    reset: (size) => {
      screen = sized(size);
      resets++;
    },
    resize: (size) => (screen += sized(size)),
    write: (more) => (screen += more),
  });
  player.advance(0.4);
  expect(screen).toBe("");
  player.advance(0.2);
  player.advance(0.2);
  expect(screen).toBe("ab");
  player.seek(99);
  expect([screen, player.position, player.ended, resets]).toEqual(["ab<80x24>c", 10, true, 0]);
  player.seek(1);
  expect([screen, player.ended, resets]).toEqual(["<50x20>ab<80x24>", false, 1]);
  player.seek(-1);
  expect([screen, player.position]).toEqual(["<50x20>", 0]);
});

test("a reset waits for at most one write", () => {
  const steps: string[] = [];
  const waiting: (() => void)[] = [];
  const painter = new Painter({
    reset: () => steps.push("reset"),
    resize: ({ columns }) => steps.push(`${columns}`),
    write: (text, done) => {
      steps.push(text.slice(0, 1));
      waiting.push(done);
    },
  });
  painter.write("a");
  painter.resize({ columns: 80, rows: 24 });
  painter.write("b".repeat(1 << 20));
  expect(steps).toEqual(["a"]);
  waiting.shift()!();
  expect(steps).toEqual(["a", "80", "b"]);
  painter.reset({ columns: 50, rows: 20 });
  painter.write("c");
  expect(steps).toEqual(["a", "80", "b"]);
  waiting.shift()!();
  expect(steps).toEqual(["a", "80", "b", "reset", "50", "c"]);
  painter.stop();
  painter.write("d");
  waiting.shift()!();
  expect(steps).toHaveLength(6);
});
