import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { blank, type Draft } from "./draft";
import { EnvironmentFields } from "./form";

afterEach(cleanup);

test("a field that is wrong says so, and is tied to what it says", () => {
  render(<EnvironmentFields draft={blank} isNew wrong={{ field: "resources.memoryMiB", message: "must be 16 to 1048576 MiB, not 3" }} onChange={() => {}} />);
  const memory = screen.getByLabelText("Memory");
  expect(memory.getAttribute("aria-invalid")).toBe("true");
  const said = memory.getAttribute("aria-describedby")!.split(" ").map((id) => document.getElementById(id)!.textContent);
  expect(said).toContain("must be 16 to 1048576 MiB, not 3");
  expect(screen.getByLabelText("CPU").getAttribute("aria-invalid")).toBeNull();
});

test("a variable that is wrong is the one that is marked", () => {
  const draft = { ...blank, variables: [{ name: "GOOD", value: "" }, { name: "1BAD", value: "" }] };
  render(<EnvironmentFields draft={draft} isNew={false} wrong={{ field: "variables.1.name", message: "must be letters" }} onChange={() => {}} />);
  expect(screen.getByLabelText("Name of variable 2").getAttribute("aria-invalid")).toBe("true");
  expect(screen.getByLabelText("Name of variable 1").getAttribute("aria-invalid")).toBeNull();
  expect(screen.getByRole("alert").textContent).toBe("must be letters");
});

test("modules are asked for with an interpreter only", () => {
  let draft: Draft = blank;
  const fields = (wrong?: { field: string; message: string }) => <EnvironmentFields draft={draft} isNew={false} wrong={wrong} onChange={(next) => (draft = next)} />;
  const { rerender } = render(fields());
  expect(screen.queryByLabelText("Modules")).toBeNull();
  fireEvent.change(screen.getByLabelText("Interpreter"), { target: { value: "PYTHON" } });
  rerender(fields({ field: "warm.modules", message: "must not name os twice" }));
  fireEvent.change(screen.getByLabelText("Modules"), { target: { value: "os, os" } });
  expect(draft).toMatchObject({ interpreter: "PYTHON", modules: "os, os" });
  expect(screen.getByLabelText("Modules").getAttribute("aria-invalid")).toBe("true");
  expect(screen.getByLabelText("Interpreter").getAttribute("aria-invalid")).toBeNull();
  rerender(fields({ field: "warm", message: "needs the isolation NAMESPACES" }));
  expect(screen.getByLabelText("Interpreter").getAttribute("aria-invalid")).toBe("true");
});

test("the slider and the number are one", () => {
  let draft: Draft = blank;
  render(<EnvironmentFields draft={draft} isNew={false} wrong={undefined} onChange={(next) => (draft = next)} />);
  fireEvent.change(screen.getByLabelText("Warm runners, as a slider"), { target: { value: "7" } });
  expect(draft.poolSize).toBe("7");
});

test("a tenant is chosen for a new one only, where there are several", () => {
  let draft: Draft = blank;
  const fields = (isNew: boolean, tenants: string[]) => <EnvironmentFields draft={draft} isNew={isNew} tenants={tenants} wrong={undefined} onChange={(next) => (draft = next)} />;
  const { rerender } = render(fields(true, ["default"]));
  expect(screen.queryByLabelText("Tenant")).toBeNull();
  rerender(fields(false, ["a", "default"]));
  expect(screen.queryByLabelText("Tenant")).toBeNull();
  rerender(fields(true, ["a", "default"]));
  expect((screen.getByLabelText("Tenant") as HTMLSelectElement).value).toBe("default");
  fireEvent.change(screen.getByLabelText("Tenant"), { target: { value: "a" } });
  expect(draft.tenant).toBe("a");
  fireEvent.click(screen.getByLabelText("Shared"));
  expect(draft.shared).toBe(true);
});
