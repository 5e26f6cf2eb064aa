import { cleanup, render } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { Table } from "./table";

afterEach(cleanup);

test.each(["", undefined])("a foot that says nothing yet keeps its height: %j", (foot) => {
  const { container } = render(<Table label="Rows" columns={[]} rows={[]} rowKey={String} total={0} least="1rem" foot={foot} empty={null} />);
  expect(container.querySelector(".table-foot")!.textContent).toBe("\u00a0");
});
