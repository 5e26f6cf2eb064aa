import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { draftOf, quotas, type Quotas } from "./quotas";
import { TenantForm } from "./tenantform";
import { TenantCard } from "./tenants";

afterEach(cleanup);

const unbounded = Object.fromEntries(quotas.map(({ name }) => [name, null])) as Quotas;
const tenant = { id: "course-1", weight: 2, createdAt: null, quotas: { ...unbounded, runners: 0, executions: 5 } };

test("a tenant with its bounds; who may only read it has no buttons", () => {
  const { container, rerender } = render(<TenantCard tenant={tenant} />);
  const facts = Object.fromEntries([...container.querySelectorAll("dl div")].map((fact) => [fact.querySelector("dt")!.textContent, fact.querySelector("dd")!.textContent]));
  expect(facts).toMatchObject({ Weight: "2", Runners: "At most 0", Executions: "At most 5", Output: "No bound" });
  expect(screen.queryByRole("button")).toBeNull();
  const [edit, remove] = [vi.fn(), vi.fn()];
  rerender(<TenantCard tenant={tenant} onEdit={edit} onDelete={remove} />);
  fireEvent.click(screen.getByRole("button", { name: "Change course-1" }));
  fireEvent.click(screen.getByRole("button", { name: "Delete course-1" }));
  expect([edit.mock.calls.length, remove.mock.calls.length]).toEqual([1, 1]);
});

test("what is wrong stands at its field, and a name is only given once", () => {
  const changed = vi.fn();
  const form = (isNew: boolean) => (
    <TenantForm draft={draftOf(tenant)} isNew={isNew} wrong={{ field: "quotas.executions", message: "must be 0 to 1000000" }} busy={false} error={undefined} onChange={changed} onSubmit={() => {}} onClose={() => {}} />
  );
  const { rerender } = render(form(false));
  expect(screen.queryByLabelText("Name")).toBeNull();
  expect(screen.getByLabelText("Executions").getAttribute("aria-invalid")).toBe("true");
  expect(screen.getByLabelText("Runners").getAttribute("aria-invalid")).toBeNull();
  fireEvent.change(screen.getByLabelText("Runners"), { target: { value: "" } });
  expect(changed.mock.calls[0]![0].quotas).toMatchObject({ runners: "", executions: "5" });
  rerender(form(true));
  expect(screen.getByLabelText("Name")).toBeTruthy();
});
