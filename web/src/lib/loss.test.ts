import { expect, test } from "vitest";
import { missing } from "./loss";

test("lost output has its size and cause", () => {
  expect(missing(7, "DELETED")).toBe("7 B of output are missing here: its file was deleted from the server's data directory");
  expect(missing(2048, "STORAGE_FULL")).toMatch(/^2.* are missing here: the server's storage was full$/);
});
