import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { moment } from "../../lib/format";
import { Ended, type EndedProps } from "./ended";

afterEach(cleanup);

const end: EndedProps["end"] = { state: "FINISHED", outcome: "EXITED", exitCode: 3, signal: null, goneReason: null, message: null, hint: null, comparison: null, usage: null };
const expiresAt = "2026-11-21T00:10:00Z";

function show(props: Partial<EndedProps>) {
  const onRelease = vi.fn();
  const onShell = vi.fn();
  const { container } = render(<Ended end={end} runner={{ id: "r1", claim: { expiresAt } }} busy={false} onRelease={onRelease} onShell={onShell} {...props} />);
  return { text: container.textContent, onRelease, onShell };
}

test("after the end the claim's expiry, Release and New shell are shown", () => {
  const { text, onRelease, onShell } = show({});
  expect(text).toContain("exit status 3");
  expect(text).toContain(`If unused, it is released at ${moment(expiresAt)}.`);
  fireEvent.click(screen.getByRole("button", { name: "Release" }));
  fireEvent.click(screen.getByRole("button", { name: "New shell" }));
  expect(onRelease).toHaveBeenCalledOnce();
  expect(onShell).toHaveBeenCalledExactlyOnceWith("r1");
});

test("a claim without expiry says so", () => {
  expect(show({ runner: { id: "r1", claim: { expiresAt: null } } }).text).toContain("until it is released");
});

test("without the runner no action is offered", () => {
  expect(show({ runner: undefined }).text).not.toContain("claimed");
  expect(screen.queryAllByRole("button")).toEqual([]);
});
