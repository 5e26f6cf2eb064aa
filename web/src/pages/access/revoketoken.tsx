import { useEffect, useState } from "react";
import { useNow } from "../../lib/time";
import type { ServerError } from "../../lib/request";
import { Dialog, Failure } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";
import { standing, type Token } from "./tokenlist";

export interface RevokeTokenProps {
  /** The token to revoke; undefined closes the dialog. */
  token: Token | undefined;
  busy: boolean;
  error: ServerError | undefined;
  onRevoke: (id: string, alsoMade: boolean) => void;
  onClose: () => void;
}

/** RevokeToken confirms the revocation of a token, or, if it has ended, of the tokens created with it. */
export function RevokeToken({ token, busy, error, onRevoke, onClose }: RevokeTokenProps) {
  const [alsoMade, setAlsoMade] = useState(false);
  useEffect(() => setAlsoMade(false), [token]);
  const now = useNow();
  const ended = token !== undefined && standing(token, now).ended;
  const name = <b><SafeText text={token?.name ?? ""} /></b>;
  return (
    <Dialog title={ended ? "Revoke the tokens created with this token?" : "Revoke this token?"} open={token !== undefined} onClose={onClose}>
      {ended ? (
        <p className="break">
          {name} has ended. If it leaked, also revoke the tokens created with it, the tokens created with those, and so on. This can't be undone.
        </p>
      ) : (
        <>
          <p className="break">
            {name} stops working immediately. Its subscriptions, WebSockets and downloads end, and so do the links created with it. This can't be undone.
          </p>
          <label className="check">
            <input type="checkbox" checked={alsoMade} onChange={(event) => setAlsoMade(event.target.checked)} />
            The token leaked: also revoke the tokens created with it
          </label>
        </>
      )}
      <Failure error={error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          {ended ? "Keep them" : "Keep it"}
        </button>
        <button type="button" className="button danger" disabled={busy} onClick={() => token && onRevoke(token.id, ended || alsoMade)}>
          {ended ? "Revoke them" : "Revoke it"}
        </button>
      </div>
    </Dialog>
  );
}
