import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, expect, test, vi } from "vitest";
import { Files } from "./files";
import { begin } from "./presets";

vi.mock("./editor", () => ({ default: () => null }));
afterEach(cleanup);

/** The files of a program, with its command. */
function Shown() {
  const [program, setProgram] = useState(begin({ id: "python", image: "host" }));
  return (
    <>
      <pre data-testid="command">{program.command}</pre>
      <Files program={program} onChange={setProgram} onRun={() => {}} />
    </>
  );
}
const name = () => screen.getByLabelText<HTMLInputElement>("File name");
const type = (value: string) => fireEvent.change(name(), { target: { value } });
const command = () => screen.getByTestId("command").textContent;

test.each([
  ["Enter", () => fireEvent.keyDown(name(), { key: "Enter" })],
  ["to leave it", () => fireEvent.blur(name())],
])("a name that is typed reaches the command only with %s", (_, give) => {
  render(<Shown />);
  for (const typed of ["", "p", "python3", "m"]) type(typed);
  expect(command()).toBe("python3 main.py");
  type("");
  screen.getByText("A file needs a name");
  give();
  expect(command()).toBe("python3 main.py");
  type("mine.py");
  give();
  expect(command()).toBe("python3 mine.py");
});
