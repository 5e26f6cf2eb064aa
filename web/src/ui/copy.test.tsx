import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Copy } from "./copy";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const clipboard = (writeText: (text: string) => Promise<void>) => vi.stubGlobal("navigator", { clipboard: { writeText } });

test("the text is copied unchanged", async () => {
  const copied = vi.fn(() => Promise.resolve());
  clipboard(copied);
  render(<Copy label="The link" text="https://x/#grant=rpg_a" />);
  fireEvent.click(screen.getByRole("button", { name: "Copy" }));
  await waitFor(() => expect(screen.getByRole("status").textContent).toBe("Copied"));
  expect(copied).toHaveBeenCalledWith("https://x/#grant=rpg_a");
});

test("without a clipboard the text is selected", async () => {
  clipboard(() => Promise.reject(new Error("refused")));
  render(<Copy label="Token" text="secret" />);
  fireEvent.click(screen.getByRole("button", { name: "Copy" }));
  await waitFor(() => expect(screen.getByRole("status").textContent).toMatch(/Ctrl-C/));
  const input = screen.getByLabelText("Token") as HTMLInputElement;
  expect([input.selectionStart, input.selectionEnd]).toEqual([0, "secret".length]);
});
