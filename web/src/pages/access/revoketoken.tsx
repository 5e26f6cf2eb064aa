import { useEffect, useState } from "react";
import type { ServerError } from "../../lib/ask";
import { Dialog, Failure } from "../../ui/parts";
import { Told } from "../../ui/told";
import type { Token } from "./tokenlist";

export interface RevokeTokenProps {
  /** Undefined: nothing is asked. */
  token: Token | undefined;
  busy: boolean;
  error: ServerError | undefined;
  onRevoke: (id: string, alsoMade: boolean) => void;
  onClose: () => void;
}

/** Asks whether to revoke a token. */
export function RevokeToken({ token, busy, error, onRevoke, onClose }: RevokeTokenProps) {
  const [alsoMade, setAlsoMade] = useState(false);
  useEffect(() => setAlsoMade(false), [token]);
  return (
    <Dialog title="Revoke this token?" open={token !== undefined} onClose={onClose}>
      <p className="break">
        Nobody can use <b><Told text={token?.name ?? ""} /></b> from then on. What is done with it now ends, and so do the links that were made with it. It can't be taken back.
      </p>
      <label className="check">
        <input type="checkbox" checked={alsoMade} onChange={(event) => setAlsoMade(event.target.checked)} />
        It leaked: revoke the tokens that were made with it, too
      </label>
      <Failure error={error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" className="button danger" disabled={busy} onClick={() => token && onRevoke(token.id, alsoMade)}>
          Revoke it
        </button>
      </div>
    </Dialog>
  );
}
