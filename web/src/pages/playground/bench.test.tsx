import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Bench } from "./bench";
import type { Draft } from "./draft";
import { begin } from "./presets";
import { server } from "./server";

vi.mock("./editor", () => ({ default: () => null }));
vi.mock("../../lib/caller", () => ({ useCaller: () => ({ caller: undefined, may: () => true }) }));

const environment = { id: "python", image: "host" };
const sample = begin(environment);
let done: string[];

beforeEach(() => {
  sessionStorage.clear();
  done = [];
  vi.spyOn(server, "claim").mockImplementation(() => {
    done.push("claim");
    return new Promise(() => {});
  });
  Element.prototype.scrollIntoView = () => void done.push("show the result");
});
afterEach(cleanup);

/** The bench with a program from a link, which replaced the reader's program. */
function Shown({ args = "" }) {
  const [draft, setDraft] = useState<Draft>({ program: { ...sample, command: "cat &", args }, kept: [{ ...sample, stdin: "mine" }] });
  const onDraft = (change: (draft: Draft) => Draft) => {
    setDraft(change(draft));
    return change(draft);
  };
  return <Bench draft={draft} linked onDraft={onDraft} onRun={() => done.push("save")} environments={[environment]} />;
}
const run = () => act(async () => void fireEvent.click(screen.getByRole("button", { name: "Run" })));

test("a program is saved before it runs, and its result is scrolled into view", async () => {
  render(<Shown />);
  await run();
  expect(done).toEqual(["show the result", "save", "claim"]);
});

test("arguments that would become a command aren't run", async () => {
  render(<Shown args="x" />);
  await run();
  expect(done).toEqual(["show the result"]);
  expect(screen.getAllByText(/can't be added at the end of this command/)).toHaveLength(2); // at the field, and as the error of the run
});

test("a program is from a link until the reader restores another one", () => {
  render(<Shown />);
  screen.getByText("Loaded from a link. Not run yet.");
  fireEvent.click(screen.getByRole("button", { name: "Restore it" }));
  screen.getByText("Not run yet.");
});
