import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Table } from "./table";

afterEach(cleanup);

test.each(["", undefined])("a foot that says nothing yet keeps its height: %j", (foot) => {
  const { container } = render(<Table label="Rows" columns={[]} rows={[]} rowKey={String} total={0} least="1rem" foot={foot} empty={null} />);
  expect(container.querySelector(".table-foot")!.textContent).toBe("\u00a0");
});

test("while columns are pending, the header reserves its place and no row shows", () => {
  const columns = [{ name: "Name", width: "1fr", cell: (row: string) => row }];
  const table = (pending: boolean) => <Table label="Rows" columns={columns} pending={pending} rows={["a"]} rowKey={String} total={1} least="1rem" empty="Not known yet" />;
  const { rerender } = render(table(true));
  expect(screen.queryByRole("columnheader")).toBeNull();
  expect(screen.getByRole("columnheader", { hidden: true }).textContent).toBe("Name");
  expect(screen.getByText("Not known yet")).toBeTruthy();
  rerender(table(false));
  expect(screen.getByRole("columnheader").textContent).toBe("Name");
  expect(screen.queryByText("Not known yet")).toBeNull();
});
