import { useState } from "react";
import { count } from "../../lib/format";
import { Copy } from "../../ui/copy";
import { Dialog, Notice } from "../../ui/parts";
import type { Program } from "./program";
import { linkTo, longest } from "./programlink";

/** Makes a link that holds the program. */
export function LinkButton({ program }: { program: Program }) {
  const [link, setLink] = useState<string>();
  const close = () => setLink(undefined);
  return (
    <>
      <button type="button" className="button" onClick={async () => setLink(await linkTo(program, window.location.origin))}>
        Link …
      </button>
      <Dialog title="A link to this program" open={link !== undefined} onClose={close}>
        {link && link.length > longest ? (
          <Notice kind="warn">
            The program is too large for a link: it would have {count(link.length)} characters, and {count(longest)} is the most. Send the files instead.
          </Notice>
        ) : (
          <>
            <Copy label="The link" text={link ?? ""} hint="Opening it loads the program and doesn't run it." />
            <p>It holds the files, the command, the arguments and the input. It contains no output. It isn't stored on a server.</p>
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
