import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import type { Parts } from "./draft";
import { Edit } from "./environment";
import { unknownMachine } from "./machine";

afterEach(cleanup);

const stored: Parts = {
  id: "python",
  tenant: "default",
  shared: false,
  revision: 1,
  image: "host",
  poolSize: 2,
  resources: { cpuMHz: 2000, memoryMiB: 256, processes: 128, workspaceMiB: 64 },
  network: { access: false, exposedPorts: [], allow: [], allowNames: [], bandwidthMbit: 0 },
  isolation: "NAMESPACES",
  runtime: "",
  variables: [],
  warm: null,
  defaultTimeLimit: 60,
  outputLimit: 16777216,
};
const theirs: Parts = { ...stored, revision: 2, image: "theirs" };
const form = (parts: Parts) => <Edit stored={parts} pool={undefined} machine={unknownMachine} onSaved={() => {}} />;
const value = (label: string) => (screen.getByLabelText(label) as HTMLInputElement).value;

test("unsaved edits survive a change by someone else until they are discarded", () => {
  const { rerender } = render(form(stored));
  fireEvent.change(screen.getByLabelText("Memory"), { target: { value: "512" } });
  rerender(form(theirs));
  expect([value("Memory"), value("Image")]).toEqual(["512", "host"]);
  fireEvent.click(screen.getByRole("button", { name: /Reload/ }));
  expect([value("Memory"), value("Image")]).toEqual(["256", "theirs"]);
  expect(screen.queryByRole("button", { name: /Reload/ })).toBeNull();
});

test("a read-only form has no buttons", () => {
  render(<Edit stored={{ ...stored, variables: [{ name: "A", value: "1" }] }} pool={undefined} machine={unknownMachine} readOnly onSaved={() => {}} />);
  expect(screen.queryByRole("button")).toBeNull();
  expect(screen.getByLabelText("Memory").closest("fieldset")!.disabled).toBe(true);
  expect(screen.getByLabelText("Memory").closest("details")!.open).toBe(true);
});

test("without edits a change by someone else shows immediately", () => {
  const { rerender } = render(form(stored));
  rerender(form(theirs));
  expect(value("Image")).toBe("theirs");
});
