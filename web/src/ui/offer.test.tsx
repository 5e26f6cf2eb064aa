import { cleanup, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Role } from "../lib/access";
import { CallerProvider } from "../lib/caller";
import { Offer } from "./offer";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

test.each([
  ["CLIENT" as Role, true],
  ["OBSERVER" as Role, false],
])("a button for clients keeps its place until it is known that the caller is %s", async (role, shown) => {
  let answer = (_: Response) => {};
  vi.stubGlobal("fetch", () => new Promise<Response>((resolve) => (answer = resolve)));
  const { container } = render(
    <CallerProvider>
      <Offer to="use">
        <button>Claim</button>
      </Offer>
    </CallerProvider>,
  );
  expect(container.querySelector(".pending[inert] button")).toBeTruthy();
  answer(Response.json({ data: { version: "1", me: { kind: "TOKEN", name: "n", tenant: "a", role }, tenants: [{ id: "a" }] } }));
  await waitFor(() => expect(container.querySelector(".pending")).toBeNull());
  expect(screen.queryByRole("button") !== null).toBe(shown);
});
