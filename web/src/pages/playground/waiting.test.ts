import { expect, test } from "vitest";
import { whyWaiting } from "./waiting";

const pool = { size: 2, idle: 0, starting: 0, claimed: 2, reason: null, image: null };
const turn = { position: null, estimatedWaitMs: null };

test.each([
  [undefined, turn, "No runner is idle."],
  [pool, turn, "No runner is idle: 2 runners are in use."],
  [{ ...pool, starting: 1 }, { ...turn, position: 1 }, "1 runner is being started. You are next."],
  [{ ...pool, size: 0, claimed: 0 }, turn, "The pool keeps no warm runners; one must be started."],
  [{ ...pool, size: 0, starting: 1 }, turn, "1 runner is being started: the pool keeps no warm runners."],
  [{ ...pool, image: { state: "PULLING" as const } }, turn, "The environment's image is being pulled."],
  [{ ...pool, starting: 1, reason: "no room: 900 GiB are wanted." }, { position: 3, estimatedWaitMs: 12_300 }, "no room: 900 GiB are wanted. 2 claims are before you, in about 12 s."],
])("%#", (of, at, want) => expect(whyWaiting(of, at)).toBe(want));
