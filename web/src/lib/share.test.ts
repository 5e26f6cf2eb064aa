import { expect, test } from "vitest";
import { grantOf, sharedId, shareLink } from "./share";

test("a link has the id in its path and the grant in its fragment only", () => {
  const link = new URL(shareLink("https://rockpool.example.org", "0199-ab", "rpg_eyJ.a-b_c.d"));
  expect([link.pathname, link.search]).toEqual(["/share/0199-ab", ""]);
  expect([sharedId(link.pathname), grantOf(link.hash)]).toEqual(["0199-ab", "rpg_eyJ.a-b_c.d"]);
});

test.each(["", "#", "#grant=", "#grant=secret", "#grant=rp_token", "#rpg_x", "#grant=rpg_<b>"])("%j has no grant", (hash) => {
  expect(grantOf(hash)).toBe("");
});

test.each([
  ["/", undefined],
  ["/executions/1", undefined],
  ["/share", undefined],
  ["/share/", ""],
  ["/share/%", ""],
  ["/share/a%2Fb", "a/b"],
])("%s shares %j", (pathname, id) => {
  expect(sharedId(pathname)).toBe(id);
});
