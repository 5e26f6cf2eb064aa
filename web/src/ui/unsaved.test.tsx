import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Unsaved } from "./unsaved";

afterEach(cleanup);

function shown(changes: boolean) {
  const followed = vi.fn((event: { preventDefault: () => void }) => event.preventDefault());
  render(
    <>
      <a href="/elsewhere" onClick={followed}>
        Away
      </a>
      <a href="#main" onClick={followed}>
        Within
      </a>
      <Unsaved changes={changes} />
    </>,
  );
  return followed;
}
const click = (name: string, how = {}) => fireEvent.click(screen.getByText(name), how);
const unload = () => {
  const event = new Event("beforeunload", { cancelable: true });
  window.dispatchEvent(event);
  return event.defaultPrevented;
};

test("without changes leaving needs no confirmation", () => {
  const followed = shown(false);
  click("Away");
  expect([followed.mock.calls.length, unload()]).toEqual([1, false]);
});

test("a link to another page asks for confirmation and is then followed", () => {
  const followed = shown(true);
  expect(unload()).toBe(true);
  click("Away");
  expect(followed).not.toHaveBeenCalled();
  click("Stay");
  expect(screen.queryByText("Leave")).toBeNull();
  click("Away");
  click("Leave");
  expect([followed.mock.calls.length, unload()]).toEqual([1, false]);
});

test("a link within the page or to another tab needs no confirmation", () => {
  const followed = shown(true);
  click("Within");
  click("Away", { ctrlKey: true });
  expect(followed).toHaveBeenCalledTimes(2);
});
