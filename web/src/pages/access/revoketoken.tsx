import { useEffect, useState } from "react";
import { useNow } from "../../lib/time";
import type { ServerError } from "../../lib/ask";
import { Dialog, Failure } from "../../ui/parts";
import { Told } from "../../ui/told";
import { standing, type Token } from "./tokenlist";

export interface RevokeTokenProps {
  /** Undefined: nothing is asked. */
  token: Token | undefined;
  busy: boolean;
  error: ServerError | undefined;
  onRevoke: (id: string, alsoMade: boolean) => void;
  onClose: () => void;
}

/** Asks whether to revoke a token, or, where it has ended, those that were made with it. */
export function RevokeToken({ token, busy, error, onRevoke, onClose }: RevokeTokenProps) {
  const [alsoMade, setAlsoMade] = useState(false);
  useEffect(() => setAlsoMade(false), [token]);
  const now = useNow();
  const ended = token !== undefined && standing(token, now).ended;
  const name = <b><Told text={token?.name ?? ""} /></b>;
  return (
    <Dialog title={ended ? "Revoke what this token made?" : "Revoke this token?"} open={token !== undefined} onClose={onClose}>
      {ended ? (
        <p className="break">
          {name} has ended. If it leaked, revoke the tokens that were made with it, with those, and so on. It can't be taken back.
        </p>
      ) : (
        <>
          <p className="break">
            Nobody can use {name} from then on. What is done with it now ends, and so do the links that were made with it. It can't be taken back.
          </p>
          <label className="check">
            <input type="checkbox" checked={alsoMade} onChange={(event) => setAlsoMade(event.target.checked)} />
            It leaked: revoke the tokens that were made with it, too
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
