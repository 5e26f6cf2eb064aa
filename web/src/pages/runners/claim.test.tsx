import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { ClaimDialog } from "./claim";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

/** Responds to the list of environments, and never to a claim. */
function server() {
  const claims = vi.fn();
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    const { query, variables } = JSON.parse(init.body as string);
    if (!query.includes("claimRunner")) return Response.json({ data: { environments: [{ id: "python" }] } });
    claims(variables.input);
    return new Promise(() => {});
  });
  return claims;
}

const button = () => screen.getByRole("button", { name: "Claim it", hidden: true });
const described = () => document.getElementById(button().getAttribute("aria-describedby")!)!.textContent;

test("the dialog says why it can't claim, and focuses the missing choice", async () => {
  const claims = server();
  render(<ClaimDialog open environment="" onClose={() => {}} />);
  expect(button().getAttribute("aria-disabled")).toBe("true");
  expect(button().hasAttribute("disabled")).toBe(false); // so that keyboard and screen reader users reach the reason
  expect(described()).toBe("Choose the environment first.");
  fireEvent.click(button());
  expect(document.activeElement).toBe(screen.getByLabelText("Environment"));
  expect(claims).not.toHaveBeenCalled();

  await waitFor(() => screen.getByRole("option", { name: "python", hidden: true }));
  fireEvent.change(screen.getByLabelText("Environment"), { target: { value: "python" } });
  expect(button().hasAttribute("aria-disabled")).toBe(false);
  expect(described()).toBe("");
  fireEvent.click(button());
  expect(described()).toContain("Claiming a runner");
  expect(button().getAttribute("aria-disabled")).toBe("true");
  fireEvent.click(button());
  await waitFor(() => expect(claims).toHaveBeenCalledOnce());
});
