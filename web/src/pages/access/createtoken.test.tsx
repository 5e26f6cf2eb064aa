import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { ServerError } from "../../lib/request";
import { session } from "../../lib/session";
import { CreateToken, TokenForm, type TokenFormProps } from "./createtoken";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
  session.forget();
});

function form(props: Partial<TokenFormProps> = {}) {
  const submitted = vi.fn();
  render(<TokenForm first={false} allTenants tenants={["a", "default"]} busy={false} error={undefined} onSubmit={submitted} onClose={() => {}} {...props} />);
  return submitted;
}
const choose = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
const submit = () => fireEvent.click(screen.getByRole("button", { name: "Create the token" }));
const options = (label: string) => [...(screen.getByLabelText(label) as HTMLSelectElement).options].map((option) => option.text);

test("the form's choices are sent", () => {
  const submitted = form();
  choose("Name", " codeocean ");
  choose("Tenant", "a");
  choose("Expires", "604800");
  submit();
  expect(submitted).toHaveBeenCalledWith({ name: "codeocean", role: "CLIENT", tenant: "a", expiresIn: 604800 });
});

test("a CLIENT token needs a tenant, other roles can have all", () => {
  const submitted = form();
  choose("Name", "n");
  expect(options("Tenant")).toEqual(["a", "default"]);
  choose("Role", "OBSERVER");
  choose("Tenant", "");
  submit();
  choose("Role", "CLIENT");
  submit();
  expect(submitted.mock.calls.map(([input]) => [input.role, input.tenant])).toEqual([["OBSERVER", null], ["CLIENT", "default"]]);
});

test("a caller of a tenant creates tokens of its tenant only", () => {
  const submitted = form({ allTenants: false });
  choose("Name", "n");
  expect(screen.queryByLabelText("Tenant")).toBeNull();
  submit();
  expect(submitted.mock.calls[0]![0].tenant).toBeNull();
});

test("the first token is an administrator's for all tenants, and says what it changes", () => {
  const submitted = form({ first: true });
  expect(screen.getByRole("status").textContent).toContain("Afterwards every caller needs a token");
  choose("Name", "n");
  submit();
  expect(submitted).toHaveBeenCalledWith({ name: "n", role: "ADMIN", tenant: null, expiresIn: null });
});

test.each([
  ["name", "must be 1 to 128 bytes", "Name"],
  ["tenant", "no tenant a", "Tenant"],
])("an error about the %s is shown at its field", (field, message, label) => {
  form({ error: new ServerError(message, "INVALID_INPUT", `input.${field}`) });
  expect(screen.getByLabelText(label).getAttribute("aria-invalid")).toBe("true");
  expect(screen.getAllByText(message)).toHaveLength(1);
});

test("an error of no field is shown below the form", () => {
  form({ error: new ServerError("there are 100000 tokens already", "LIMIT_EXCEEDED") });
  expect(screen.getByRole("alert").textContent).toContain("there are 100000 tokens");
});

test.each(["TOKEN", "ANONYMOUS"] as const)("for a caller by %s the secret is shown once, and is stored only if the server required no token before", async (kind) => {
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ data: { createToken: { token: { id: "t" }, secret: "rp_secret" } } })));
  const closed = vi.fn();
  const caller = { kind, name: "n", role: "ADMIN" as const, tenant: null };
  const view = (open: boolean) => <CreateToken open={open} caller={caller} tenants={["default"]} onCreated={() => {}} onClose={closed} />;
  const { rerender } = render(view(true));
  choose("Name", "n");
  submit();
  const input = (await waitFor(() => screen.getByLabelText("The token"))) as HTMLInputElement;
  expect(input.value).toBe("rp_secret");
  expect(session.token()).toBe(kind === "ANONYMOUS" ? "rp_secret" : "");
  const reload = vi.fn();
  vi.spyOn(window.location, "reload").mockImplementation(reload);
  fireEvent.click(screen.getByRole("button", { name: "I have copied it" }));
  expect(closed).toHaveBeenCalledTimes(1);
  expect(reload).toHaveBeenCalledTimes(kind === "ANONYMOUS" ? 1 : 0);
  rerender(view(false));
  rerender(view(true));
  expect(screen.queryByLabelText("The token")).toBeNull();
});
