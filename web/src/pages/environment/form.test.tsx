import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { blank, type Draft, type WrongField } from "./draft";
import { EnvironmentFields } from "./form";
import { unknownMachine, type Machine } from "./machine";

afterEach(cleanup);

test("a wrong field has its error as accessible description", () => {
  render(<EnvironmentFields draft={blank} isNew machine={unknownMachine} wrong={[{ field: "resources.memoryMiB", message: "must be 16 to 1048576 MiB, not 3" }]} onChange={() => {}} />);
  const memory = screen.getByLabelText("Memory");
  expect(memory.getAttribute("aria-invalid")).toBe("true");
  const said = memory.getAttribute("aria-describedby")!.split(" ").map((id) => document.getElementById(id)!.textContent);
  expect(said).toContain("must be 16 to 1048576 MiB, not 3");
  expect(screen.getByLabelText("CPU").getAttribute("aria-invalid")).toBeNull();
});

test("the wrong variable is marked", () => {
  const draft = { ...blank, variables: [{ name: "GOOD", value: "" }, { name: "1BAD", value: "" }] };
  render(<EnvironmentFields draft={draft} isNew={false} machine={unknownMachine} wrong={[{ field: "variables.1.name", message: "must be letters" }]} onChange={() => {}} />);
  expect(screen.getByLabelText("Name of variable 2").getAttribute("aria-invalid")).toBe("true");
  expect(screen.getByLabelText("Name of variable 1").getAttribute("aria-invalid")).toBeNull();
  expect(screen.getByRole("alert").textContent).toBe("must be letters");
});

test("modules are shown only with an interpreter", () => {
  let draft: Draft = blank;
  const fields = (wrong?: { field: string; message: string }) => <EnvironmentFields draft={draft} isNew={false} machine={unknownMachine} wrong={wrong ? [wrong] : []} onChange={(next) => (draft = next)} />;
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

test("the slider and the number have one value", () => {
  let draft: Draft = blank;
  render(<EnvironmentFields draft={draft} isNew={false} machine={unknownMachine} wrong={[]} onChange={(next) => (draft = next)} />);
  fireEvent.change(screen.getByLabelText("Warm runners, as a slider"), { target: { value: "7" } });
  expect(draft.poolSize).toBe("7");
});

test("the tenant can be chosen only for a new environment and several tenants", () => {
  let draft: Draft = blank;
  const fields = (isNew: boolean, tenants: string[]) => <EnvironmentFields draft={draft} isNew={isNew} tenants={tenants} machine={unknownMachine} wrong={[]} onChange={(next) => (draft = next)} />;
  const { rerender } = render(fields(true, ["default"]));
  expect(screen.queryByLabelText("Tenant")).toBeNull();
  rerender(fields(false, ["a", "default"]));
  expect(screen.queryByLabelText("Tenant")).toBeNull();
  rerender(fields(true, ["a", "default"]));
  expect((screen.getByLabelText("Tenant") as HTMLSelectElement).value).toBe("default");
  fireEvent.change(screen.getByLabelText("Tenant"), { target: { value: "a" } });
  expect(draft.tenant).toBe("a");
  fireEvent.click(screen.getByLabelText("Share with all tenants"));
  expect(draft.shared).toBe(true);
});

const known: Machine = { kind: "local", coreMHz: 2500, largestRunner: { cpuMHz: 5000, memoryMiB: 2000, processes: 1000, workspaceMiB: 2000 }, hostInterpreters: ["cc", "c++", "python3", "sh"] };

/** The form with a draft that changes; it returns what the draft is now. */
function live(first: Draft, more: { machine?: Machine; wrong?: WrongField[]; refused?: WrongField } = {}) {
  const now = { draft: first };
  const fields = () => <EnvironmentFields draft={now.draft} isNew machine={known} wrong={[]} {...more} onChange={change} />;
  const change = (next: Draft) => {
    now.draft = next;
    rerender(fields());
  };
  const { rerender } = render(fields());
  return now;
}
const type = (label: string, value: string) => fireEvent.change(screen.getByLabelText(label), { target: { value } });
const text = (label: string) => (screen.getByLabelText(label) as HTMLInputElement).value;
const advanced = () => screen.getByText("Advanced").closest("details")!.open;

test("name, language, image and size come first, and the rest is under Advanced", () => {
  live(blank);
  const first = [...document.querySelectorAll("fieldset > .field > label")].map((label) => label.textContent);
  expect([first, advanced()]).toEqual([["Name", "Language", "Image", "Size"], false]);
});

test.each([
  ["a value that isn't the default", { ...blank, poolSize: "5" }, [], true],
  ["another size", { ...blank, memoryMiB: "257" }, [], true],
  ["a named size", { ...blank, cpuMHz: "1000", memoryMiB: "128", processes: "64", workspaceMiB: "32" }, [], false],
  ["an error in it", blank, [{ field: "network.allow.0", message: "must be a network" }], true],
  ["an error before it", blank, [{ field: "id", message: "must be letters" }], false],
])("%s: Advanced is open or not", (_, draft, wrong, want) => {
  live(draft, { wrong });
  expect(advanced()).toBe(want);
});

test("the refused field gets the focus, also under Advanced", () => {
  const refused = { field: "resources.memoryMiB", message: "must be less" };
  live(blank, { wrong: [refused], refused });
  expect(document.activeElement).toBe(screen.getByLabelText("Memory"));
});

test("an error of a field that isn't shown appears with the field's name", () => {
  live(blank, { wrong: [{ field: "surprise", message: "must be less" }] });
  expect(screen.getByRole("alert").textContent).toBe("surprise: must be less");
});

test("CPU is in cores if a core's clock is known, with the stored MHz", () => {
  const now = live(blank);
  expect([text("CPU"), screen.getByText(/One core is/).textContent]).toEqual(["0.8", "One core is 2,500 MHz; this is stored as 2,000 MHz."]);
  for (const typed of ["1.", "1.5"]) {
    type("CPU", typed);
    expect(text("CPU")).toBe(typed);
  }
  expect(now.draft.cpuMHz).toBe("3750");
  type("Output limit", "0.5");
  expect(now.draft.outputLimit).toBe("524288");
  cleanup();
  live(blank, { machine: unknownMachine });
  expect(text("CPU")).toBe("2000");
});

test("the checkbox allows network access", () => {
  const now = live(blank);
  const box = screen.getByRole("checkbox", { name: "Allow network access", hidden: true }) as HTMLInputElement;
  expect([box.checked, now.draft.access]).toEqual([false, false]);
  fireEvent.click(box);
  expect([box.checked, now.draft.access]).toEqual([true, true]);
});

test("a language uses the host's programs if it has them, else an image", () => {
  const now = live(blank);
  type("Language", "Python");
  expect(now.draft).toMatchObject({ image: "host", interpreter: "PYTHON" });
  type("Language", "Node");
  expect(now.draft).toMatchObject({ image: "node:22-slim", interpreter: "NONE" });
  expect(screen.queryByText(/The image host has no/)).toBeNull();
  type("Image", "host");
  type("Language", "Java");
  type("Image", "host");
  expect(screen.getByRole("status").textContent).toBe("The image host has no java and no javac on this machine: programs in Java won't start.Use eclipse-temurin:21");
  fireEvent.click(screen.getByRole("button", { name: /Use/ }));
  expect(now.draft.image).toBe("eclipse-temurin:21");
});

test("a size sets all amounts, and other amounts are Custom", () => {
  const now = live(blank);
  type("Size", "Large");
  expect(now.draft).toMatchObject({ cpuMHz: "4000", memoryMiB: "1024", processes: "256", workspaceMiB: "256" });
  type("Memory", "300");
  expect((screen.getByLabelText("Size") as HTMLSelectElement).selectedOptions[0]!.textContent).toBe("Custom: 1.6 cores, 300 MiB");
});
