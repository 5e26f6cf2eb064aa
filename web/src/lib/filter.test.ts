import { expect, test } from "vitest";
import { localTime, readFilters, readLabel, timesAt, withLabel, labelText } from "./filter";

const states = [["RUNNING", "Running"], ["FINISHED", "Ended"]] as const;
const outcomes = [["failed", "Failed"]] as const;
const read = (search: string) => readFilters(new URLSearchParams(search), states, outcomes);

test("the address's filters are read and described", () => {
  const all = read("environment=python&state=RUNNING&outcome=failed&label=user%3Dada&label=course&label=course&text=main.py&since=1d");
  expect(all).toMatchObject({
    environment: "python",
    state: "RUNNING",
    outcome: "failed",
    labels: [{ name: "user", value: "ada" }, { name: "course", value: null }],
    text: "main.py",
    since: 86_400_000,
    from: null,
    to: null,
    wrong: [],
  });
  expect(all.words).toEqual(["environment “python”", "running", "failed", "label user=ada", "label course", "text “main.py”", "the last day"]);
  expect(read("")).toMatchObject({ words: [], wrong: [], labels: [], since: null });
});

test.each([
  ["state=SLEEPING", "state", "RUNNING, FINISHED"],
  ["outcome=toString", "outcome", "failed"],
  ["label=%3Dada", "label", "256"],
  [`label=a%3D${"ä".repeat(129)}`, "label", "256"],
  ["since=1y", "since", "1h, 1d, 7d"],
  ["from=yesterday", "from", "2026"],
  ["to=0000-01-01", "to", "2026"],
  ["from=2026-02-02T00:00:00Z&to=2026-02-02T00:00:00Z", "to", "after from"],
  ["since=1h&from=2026-02-02", "from", "since"],
  ["text=a%00", "text", "NUL"],
  [`text=${"ä".repeat(2049)}`, "text", "4096"],
])("an invalid filter is reported and ignored: %s", (search, name, why) => {
  const { wrong, text, state, outcome, labels, to } = read(search);
  expect(wrong.map((one) => one.name)).toEqual([name]);
  expect(wrong[0]!.why).toContain(why);
  expect({ text, state, outcome, labels, to }).toEqual({ text: "", state: "", outcome: "", labels: [], to: null });
});

test("at most 32 labels are used", () => {
  const { labels, wrong } = read(Array.from({ length: 33 }, (_, n) => `label=n${n}`).join("&"));
  expect(labels).toHaveLength(32);
  expect(wrong[0]!.value).toBe("n32");
});

test("a range that ends now moves with the clock", () => {
  const now = Date.parse("2026-02-02T12:00:00Z");
  expect(timesAt(read("since=1h"), now)).toEqual({ from: "2026-02-02T11:00:00.000Z", to: null });
  expect(timesAt(read("from=2026-02-01T00:00:00Z&to=2026-02-02T00:00:00Z"), now)).toEqual({ from: "2026-02-01T00:00:00.000Z", to: "2026-02-02T00:00:00.000Z" });
});

test("labels survive reading and writing, and withLabel keeps the other filters", () => {
  for (const text of ["user=ada", "user", "user=", "user=a=b"]) expect(labelText(readLabel(text)!)).toBe(text);
  const params = new URLSearchParams("outcome=failed&label=course%3Dc");
  expect(withLabel("/executions", params, { name: "user", value: "a&b" })).toBe("/executions?outcome=failed&label=course%3Dc&label=user%3Da%26b");
  expect(withLabel("/executions", params, { name: "course", value: "c" })).toBe("/executions?outcome=failed&label=course%3Dc");
});

test("localTime is in the browser's time zone", () => {
  expect(new Date(localTime("2026-02-02T11:05:00Z")).toISOString()).toBe("2026-02-02T11:05:00.000Z");
});
