import { useState } from "react";
import { request } from "../../lib/request";
import { graphql } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { Card, Notice } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";

export const WriteStdinMutation = graphql(`
  mutation WriteStdin($input: WriteStdinInput!) {
    writeStdin(input: $input) {
      offset
    }
  }
`);

/** Feed writes lines to a program's standard input. */
export function Feed({ id }: { id: string }) {
  const [text, setText] = useState("");
  const send = useAction(async (input: { text?: string; close?: boolean }) => {
    await request(WriteStdinMutation, { input: { executionId: id, ...input } });
    if (input.text !== undefined) setText("");
  });
  return (
    <Card>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          void send.run({ text: `${text}\n` });
        }}
      >
        <input className="input mono grow" aria-label="A line of input" placeholder="A line for standard input" value={text} onChange={(event) => setText(event.target.value)} autoComplete="off" spellCheck={false} />
        <button type="submit" className="button" disabled={send.busy}>
          Send
        </button>
        <button type="button" className="button" disabled={send.busy} onClick={() => void send.run({ close: true })}>
          End of input
        </button>
      </form>
      {send.error && (
        <div style={{ marginTop: "0.75rem" }}>
          <Notice kind={send.error.code === "CONFLICT" ? "warn" : "bad"}><SafeText text={send.error.message} /></Notice>
        </div>
      )}
    </Card>
  );
}
