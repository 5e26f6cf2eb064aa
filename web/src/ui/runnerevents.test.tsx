import { cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { ClusterLink, EventList, RunnerName } from "./runnerevents";

afterEach(cleanup);

test("events are listed in order with their times", () => {
  render(
    <EventList
      events={[
        { at: "2026-11-22T01:00:00Z", kind: "PLACED", message: "It got its allocation." },
        { at: "2026-11-22T01:00:01.5Z", kind: "START_FAILED", message: "It could not be started: its driver couldn't start it." },
      ]}
    />,
  );
  const items = screen.getAllByRole("listitem");
  expect(items.map((item) => within(item).getByText(/\.$/).textContent)).toEqual(["It got its allocation.", "It could not be started: its driver couldn't start it."]);
  expect(items.map((item) => item.querySelector("time")?.dateTime)).toEqual(["2026-11-22T01:00:00Z", "2026-11-22T01:00:01.5Z"]);
  expect(within(items[1]!).getByText("Start failed").className).toContain("bad");
});

test("an empty list of events shows an explanation", () => {
  render(<EventList events={[]} />);
  expect(screen.queryByRole("list")).toBeNull();
  expect(screen.getByText(/No events/)).toBeTruthy();
});

test("a click on a runner's id requests its events", () => {
  const show = vi.fn();
  render(<RunnerName id="01a200fc-f2d6-70ac-823e-d76ebac6dd62" onShow={show} />);
  fireEvent.click(screen.getByRole("button", { name: /Events of runner/ }));
  expect(show).toHaveBeenCalledWith("01a200fc-f2d6-70ac-823e-d76ebac6dd62");
});

test("the cluster's web UI opens in a new tab without a referrer", () => {
  const { container, rerender } = render(<ClusterLink url="https://nomad.example.org/ui/jobs/a@default" what="Its job" />);
  const link = screen.getByRole("link", { name: /Its job/ }) as HTMLAnchorElement;
  expect([link.href, link.target, link.rel]).toEqual(["https://nomad.example.org/ui/jobs/a@default", "_blank", "noopener noreferrer"]);
  rerender(<ClusterLink url={null} what="Its job" />);
  expect(container.textContent).toBe("");
});
