import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { ShareButton } from "./sharebutton";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

test.each([
  ["", 3_600],
  ["86400", 86_400],
  ["604800", 604_800],
])("a link grants WATCH on one execution for the chosen time: %s", async (life, expiresIn) => {
  const fetch = vi.fn((_: string, _init: RequestInit) => Promise.resolve(Response.json({ data: { createGrant: { token: "rpg_a.b.c", grant: { expiresAt: "2026-11-22T00:00:00Z" } } } })));
  vi.stubGlobal("fetch", fetch);
  render(<ShareButton id="0199" />);
  fireEvent.click(screen.getByRole("button", { name: "Share …" }));
  if (life) fireEvent.change(screen.getByLabelText("Expires"), { target: { value: life } });
  fireEvent.click(screen.getByRole("button", { name: "Create the link" }));
  const input = (await waitFor(() => screen.getByLabelText("The link"))) as HTMLInputElement;
  expect(input.value).toBe(`${window.location.origin}/share/0199#grant=rpg_a.b.c`);
  expect(JSON.parse(fetch.mock.calls[0]![1].body as string).variables).toEqual({ input: { executionId: "0199", rights: ["WATCH"], expiresIn } });
});

test("an error of the server is shown", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ errors: [{ message: "createGrant needs the role CLIENT", extensions: { code: "FORBIDDEN" } }] })));
  render(<ShareButton id="0199" />);
  fireEvent.click(screen.getByRole("button", { name: "Share …" }));
  fireEvent.click(screen.getByRole("button", { name: "Create the link" }));
  await waitFor(() => expect(screen.getByText(/needs the role CLIENT/)).toBeTruthy());
  expect(screen.queryByLabelText("The link")).toBeNull();
});
