import { useState } from "react";
import { count } from "../../lib/format";
import { Copy } from "../../ui/copy";
import { Dialog, Notice } from "../../ui/parts";
import type { Program } from "./program";
import { linkTo, longest } from "./programlink";

/** LinkButton creates a link that contains the program. */
export function LinkButton({ program }: { program: Program }) {
  const [link, setLink] = useState<string>();
  const close = () => setLink(undefined);
  return (
    <>
      <button type="button" className="button" onClick={async () => setLink(await linkTo(program, window.location.origin))}>
        Link …
      </button>
      <Dialog title="Link to this program" open={link !== undefined} onClose={close}>
        {link && link.length > longest ? (
          <Notice kind="warn">
            The program is too large for a link: the link would have {count(link.length)} characters, of at most {count(longest)}. Send the files instead.
          </Notice>
        ) : (
          <>
            <Copy label="The link" text={link ?? ""} hint="Opening it loads the program and doesn't run it." />
            <p>The link contains the files, the command, the arguments and the input, but no output. No server stores it.</p>
          </>
        )}
        <div className="row">
          <button type="button" className="button" onClick={close}>
            Close
          </button>
        </div>
      </Dialog>
    </>
  );
}
