import { afterEach, expect, test, vi } from "vitest";
import { update } from "./file";

afterEach(() => vi.unstubAllGlobals());

test("where no file can be protected, root's files are saved as the program's", async () => {
  const sent: unknown[] = [];
  vi.stubGlobal("fetch", (_address: string, init: { body: string }) => {
    const { input } = (JSON.parse(init.body) as { variables: { input: { protected: boolean } } }).variables;
    sent.push(input.protected);
    const refused = { errors: [{ message: "files can't be protected in this runner", extensions: { code: "INVALID_INPUT", field: "protected" } }] };
    return Promise.resolve(new Response(JSON.stringify(input.protected ? refused : { data: { updateFiles: { failed: [] } } })));
  });
  await update({ runnerId: "r", write: [{ path: "a", text: "" }], protected: true });
  expect(sent).toEqual([true, false]);
});
