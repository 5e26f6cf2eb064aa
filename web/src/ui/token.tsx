import { useState, useSyncExternalStore } from "react";
import { session } from "../lib/session";
import { Dialog, Field } from "./parts";

/** Asks for the token that the server wants, and loads the page again with it. */
export function TokenDialog() {
  const wanted = useSyncExternalStore(session.listen, session.wanted);
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState(false);
  const title = session.asked() ? "Use another token" : session.token() !== "" ? "The server doesn't take this token" : "This server wants a token";
  return (
    <Dialog title={title} open={wanted} onClose={session.without}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          session.set(token.trim(), remember);
          window.location.reload();
        }}
      >
        <Field label="Token" hint="An administrator of the server makes tokens; the first one is in the file of its --token-file. It goes to this server only, and is never in an address.">
          {(tie) => (
            <input {...tie} className="input" type="password" autoComplete="off" required value={token} onChange={(event) => setToken(event.target.value)} />
          )}
        </Field>
        <label className="check">
          <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.target.checked)} />
          Remember it in this browser
        </label>
        <p className="small soft">
          {remember
            ? "Every tab has it, until it is forgotten here: then whoever uses this browser profile can use the server, too."
            : "This tab keeps it until it is closed. Another tab, GraphiQL's too, asks for it again."}
        </p>
        <div className="row">
          <button className="button primary" type="submit">
            Use it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** What ends it, where there is a token. */
export function ForgetToken() {
  const there = useSyncExternalStore(session.listen, session.token) !== "";
  if (!there) return null;
  const forget = () => {
    session.forget();
    window.location.reload();
  };
  return (
    <button type="button" className="button small" onClick={forget}>
      Forget the token
    </button>
  );
}
