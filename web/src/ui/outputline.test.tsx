import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { OutputLine } from "./outputline";

function shown(text: string, wanted = "") {
  return render(<OutputLine line={{ stderr: false, text, style: {} }} wanted={wanted} />).container;
}

test("markup is shown as text", () => {
  const container = shown(`<img src=x onerror="alert(1)"> &amp; <a href="javascript:alert(1)">x</a>`);
  expect(container.children).toHaveLength(0);
  expect(container.textContent).toBe(`<img src=x onerror="alert(1)"> &amp; <a href="javascript:alert(1)">x</a>`);
});

test("lost output shows its cause", () => {
  const { container } = render(<OutputLine line={{ stderr: false, text: "", style: {}, lost: { bytes: 7, cause: "DAMAGED" } }} wanted="" />);
  expect(container.querySelector(".lost")!.textContent).toBe("7 B of output are missing here: its file in the server's data directory is damaged");
});

test("colours become classes", () => {
  const container = shown("\x1b[1;31mred\x1b[0m and not");
  expect(container.querySelector(".b.fg1")!.textContent).toBe("red");
  expect(container.textContent).toBe("red and not");
});

test("all matches of the search are marked", () => {
  const marks = [...shown("One two ONE", "one").querySelectorAll("mark")].map((mark) => mark.textContent);
  expect(marks).toEqual(["One", "ONE"]);
});

test("direction-changing characters are marked, also in matches", () => {
  for (const wanted of ["", "admin"]) {
    const container = shown("/*\u202e } \u2066if admin\u2069", wanted);
    expect([...container.querySelectorAll(".unseen")].map((mark) => mark.textContent)).toEqual(["U+202E", "U+2066", "U+2069"]);
    expect(container.textContent).not.toMatch(/[\u202e\u2066\u2069]/);
  }
});
