import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { SkipLink } from "./frame";

afterEach(cleanup);

test("the skip link focuses the content and keeps the address", () => {
  window.history.replaceState(null, "", "/executions/x#L3-L5");
  render(
    <>
      <SkipLink />
      <main id="main" tabIndex={-1} />
    </>,
  );
  expect(fireEvent.click(screen.getByText("Skip to the content"))).toBe(false); // the browser doesn't follow it
  expect(document.activeElement).toBe(screen.getByRole("main"));
  expect(window.location.hash).toBe("#L3-L5");
});
