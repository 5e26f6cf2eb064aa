import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test } from "vitest";
import { ImageState } from "./image";

afterEach(cleanup);

const image = { digest: "sha256:abc", state: "PULLING" as const, layers: 3, layersDone: 1, bytes: 4096, bytesDone: 1024, reason: null };

test("an environment without an image shows no image state", () => {
  const { container } = render(<ImageState image={null} served={false} />);
  expect(container.textContent).toBe("");
});

test("a pull shows its layers and bytes", () => {
  render(<ImageState image={image} served={true} />);
  expect(screen.getByRole("status").textContent).toContain("1 of 3 layers");
  expect(screen.getByRole("status").textContent).toContain("Meanwhile the pool uses the previous revision");
  expect(screen.getByRole("progressbar").getAttribute("value")).toBe("1024");
});

test("a failure shows its reason, and a ready image its digest", () => {
  const { container, rerender } = render(<ImageState image={{ ...image, state: "FAILED", reason: "no such thing" }} served={false} />);
  expect(container.textContent).toContain("is unavailable: no such thing.");
  expect(container.textContent).not.toContain("meanwhile");
  rerender(<ImageState image={{ ...image, state: "READY" }} served={false} />);
  expect(container.textContent).toContain("sha256:abc");
});
