import { useState } from "react";
import { request } from "../../lib/request";
import { moment } from "../../lib/format";
import { graphql } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { shareLink } from "../../lib/share";
import { Copy } from "../../ui/copy";
import { Dialog, Failure, Field, Notice } from "../../ui/parts";

const GrantMutation = graphql(`
  mutation ShareExecution($input: CreateGrantInput!) {
    createGrant(input: $input) {
      token
      grant {
        expiresAt
      }
    }
  }
`);

const lives = [
  [3_600, "After an hour"],
  [86_400, "After a day"],
  [7 * 86_400, "After a week"],
] as const;

/** ShareButton creates a link that lets people without a token watch an execution, and nothing else. */
export function ShareButton({ id, small = false }: { id: string; small?: boolean }) {
  const [open, setOpen] = useState(false);
  const [made, setMade] = useState<{ link: string; until: string }>();
  const share = useAction(async (expiresIn: number) => {
    const { createGrant } = await request(GrantMutation, { input: { executionId: id, rights: ["WATCH"], expiresIn } });
    setMade({ link: shareLink(window.location.origin, id, createGrant.token), until: createGrant.grant.expiresAt });
  });
  const close = () => {
    setOpen(false);
    setMade(undefined); // a link is shown once; another can be created
    share.clear();
  };
  return (
    <>
      <button type="button" className={`button ${small ? "small" : ""}`} onClick={() => setOpen(true)}>
        Share …
      </button>
      <Dialog title="Share this execution" open={open} onClose={close}>
        {made ? (
          <>
            <Copy label="The link" text={made.link} hint={`It works until ${moment(made.until)}.`} />
            <Notice>Anyone with this link can watch the command and its output, live, and nothing else. To end it earlier, revoke the token that created it.</Notice>
            <div className="row">
              <button type="button" className="button" onClick={close}>
                Close
              </button>
            </div>
          </>
        ) : (
          <form
            className="stack"
            onSubmit={(event) => {
              event.preventDefault();
              void share.run(Number(new FormData(event.currentTarget).get("life")));
            }}
          >
            <p>A link lets people watch this one execution without a token.</p>
            <Field label="Expires">
              {(tie) => (
                <select {...tie} name="life" className="select" defaultValue={lives[0][0]}>
                  {lives.map(([seconds, text]) => (
                    <option key={seconds} value={seconds}>
                      {text}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            <Failure error={share.error} />
            <div className="row">
              <button type="button" className="button" onClick={close}>
                Cancel
              </button>
              <button type="submit" className="button primary" disabled={share.busy}>
                Create the link
              </button>
            </div>
          </form>
        )}
      </Dialog>
    </>
  );
}
