import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { nice, slotsFor, Spark, Stack } from "./chart";

test.each([
  [1, 1],
  [3, 4],
  [10, 10],
  [11, 20],
  [73, 80],
])("a scale for %d ends at %d", (value, want) => expect(nice(value)).toBe(want));

test("the newest value is at the right edge", () => {
  const { container } = render(<Spark values={[0, 2, 1]} slots={5} label="l" />);
  expect(container.querySelector(".line")!.getAttribute("d")).toBe("M120.0 30.0L180.0 2.0L240.0 16.0");
});

test("layers are stacked", () => {
  const { container } = render(
    <Stack
      label="l"
      layers={[
        { name: "idle", values: [1, 2] },
        { name: "claimed", values: [1, 0] },
      ]}
    />,
  );
  const paths = [...container.querySelectorAll("path")].map((path) => path.getAttribute("d"));
  expect(paths).toEqual(["M695.2 80.0L720.0 0.0L720.0 160.0L695.2 160.0Z", "M695.2 0.0L720.0 0.0L720.0 0.0L695.2 80.0Z"]);
});

test.each([
  [0, 30],
  [31, 90],
  [180, 180],
  [181, 360],
  [360, 360],
])("%d entries are shown among %d", (length, slots) => expect(slotsFor(length)).toBe(slots));

test("without values the chart is an empty frame", () => {
  const { container } = render(<Spark values={[]} slots={5} label="l" />);
  expect(container.querySelector("path")).toBeNull();
});
