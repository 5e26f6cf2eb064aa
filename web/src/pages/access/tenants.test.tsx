import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { draftOf, quotas, type Quotas, type Tenant } from "./quotas";
import { TenantForm } from "./tenantform";
import { TenantCard } from "./tenants";

afterEach(cleanup);

const unbounded = Object.fromEntries(quotas.map(({ name }) => [name, null])) as Quotas;
const use = { ...(Object.fromEntries(quotas.map(({ name }) => [name, 0])) as Tenant["use"]), executions: 2, waiting: 3, outputBytesPerDay: 2048 };
const tenant = { id: "course-1", weight: 2, createdAt: null, quotas: { ...unbounded, runners: 0, executions: 5, claimsPerMinute: 10 }, use };

test("a tenant shows quotas and use, and without access no buttons", () => {
  const { container, rerender } = render(<TenantCard tenant={tenant} />);
  const facts = Object.fromEntries([...container.querySelectorAll("dl > div")].map((fact) => [fact.querySelector("dt")!.textContent, fact.querySelector("dd")!.textContent]));
  expect(facts).toMatchObject({ Weight: "2", Runners: "0 of 0", Executions: "2 of 5", Claims: "0 of 10 a minute", "Waiting claims": "3, no limit", Output: "2 KiB a day, no limit" });
  const bars = [...container.querySelectorAll<HTMLElement>(".meter-bar")].map((bar) => [bar.getAttribute("aria-hidden"), bar.classList.contains("full"), bar.querySelector("span")!.style.width]);
  expect(bars).toEqual([["true", true, "100%"], ["true", false, "40%"], ["true", false, "0%"]]);
  expect(screen.getByRole("link", { name: "Waiting claims: 3, no limit" }).getAttribute("href")).toBe("/access/queue?tenant=course-1");
  expect(screen.queryByRole("button")).toBeNull();
  const [edit, remove] = [vi.fn(), vi.fn()];
  rerender(<TenantCard tenant={tenant} onEdit={edit} onDelete={remove} />);
  fireEvent.click(screen.getByRole("button", { name: "Change course-1" }));
  fireEvent.click(screen.getByRole("button", { name: "Delete course-1" }));
  expect([edit.mock.calls.length, remove.mock.calls.length]).toEqual([1, 1]);
});

test("an error is shown at its field, and only a new tenant has a name field", () => {
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
