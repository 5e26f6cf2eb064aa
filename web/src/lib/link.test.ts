import { expect, test } from "vitest";
import { Link } from "./link";

test("without followers that reconnect, the state isn't lost", () => {
  const link = new Link("ws://127.0.0.1:1/graphql");
  const [one, two] = [{}, {}];
  link.lost(one);
  link.lost(two);
  link.left(one);
  expect(link.current()).toBe("lost");
  link.left(two);
  expect(link.current()).toBe("idle");
});
