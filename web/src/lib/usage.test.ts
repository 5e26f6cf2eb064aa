import { expect, test } from "vitest";
import { measured, percent } from "./usage";

test("the share refers to the time between two measurements", () => {
  const first = measured(undefined, { cpu: 100, at: 1000 });
  expect(percent(first.share)).toBe("–");
  const second = measured(first, { cpu: 1600, at: 2000 });
  expect(percent(second.share)).toBe("150 %");
  expect(measured(second, { cpu: 1600, at: 2000 })).toBe(second);
  expect(percent(measured(second, { cpu: 1500, at: 3000 }).share)).toBe("0 %");
  expect(measured(second, { cpu: 10, at: 500 }).share).toBeUndefined();
});
