import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { visible } from "../lib/visible";
import { SafeText } from "./safetext";

const shown = (text: string) => render(<SafeText text={text} />).container;

test("direction-changing and invisible characters are marked", () => {
  const container = shown("safe\u202etxt.exe");
  expect(container.textContent).toBe("safeU+202Etxt.exe");
  expect(container.querySelector(".unseen")!.textContent).toBe("U+202E");
  for (const [text, seen] of [
    ["\u2066if admin\u2069 \u200e", "[U+2066]if admin[U+2069] [U+200E]"],
    ["pay\u200dpal\ufeff ro\u200bot", "pay[U+200D]pal[U+FEFF] ro[U+200B]ot"],
    ["tag\u{e0041}\u2028\x1b[2J\x9b", "tag[U+E0041][U+2028][U+001B][2J[U+009B]"],
    ["\u3164", "[U+3164]"],
  ] as const) {
    expect(visible(text)).toBe(seen);
    expect(shown(text).querySelectorAll(".unseen").length).toBeGreaterThan(0);
  }
});

test("joiners in scripts and emoji are kept", () => {
  for (const text of ["👩\u200d💻 é", "می\u200cخواهم", "שלום עולם", "日本語", "a\tb\nc", "<b>&amp;</b>", ""]) {
    expect(visible(text)).toBe(text);
    expect(shown(text).innerHTML).toBe(text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"));
  }
});
