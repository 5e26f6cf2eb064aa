import { useEffect, useState, useSyncExternalStore } from "react";
import { useLocation, useSearch } from "wouter";
import { ServerError } from "../lib/ask";
import { useCaller } from "../lib/caller";
import { useAction } from "../lib/hooks";
import { session } from "../lib/session";
import { forgetDrafts } from "../lib/store";
import { Dialog, Field } from "./parts";

const tryEvery = 3_000;

/** Whether people can sign in at this server, once it has said so. A server that doesn't answer is asked again. */
function useProvider(ask: boolean): boolean {
  const [there, setThere] = useState(false);
  useEffect(() => {
    if (!ask) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        const response = await fetch("/auth/provider", { signal: stop.signal });
        if (!response.ok) throw new Error(response.statusText);
        const { configured } = (await response.json()) as { configured: boolean };
        setThere(configured);
      } catch {
        if (!stop.signal.aborted) timer = setTimeout(() => void load(), tryEvery); // until then a token is the way in
      }
    };
    void load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [ask]);
  return there;
}

/**
 * Leads to the provider, and from there back to this page. A token would count before the session, so
 * it is forgotten: offer it only where there is none, or where the server refuses it.
 */
function SignInLink({ small }: { small?: boolean }) {
  // A change of either shows the link anew: it leads back to the page as it is now.
  useLocation();
  useSearch();
  const back = new URLSearchParams({ return: window.location.pathname + window.location.search });
  return (
    <a className={small ? "button small" : "button"} href={`/auth/login?${back}`} onClick={session.forget}>
      Sign in
    </a>
  );
}

/** Signs out a person who signed in, and lets one sign in where nobody is known. */
export function SignIn() {
  const { caller, error } = useCaller();
  const outside = caller ? caller.kind === "ANONYMOUS" : error?.code === "UNAUTHENTICATED";
  const provider = useProvider(outside);
  if (caller?.kind === "SESSION") return <SignOut />;
  return outside && provider ? <SignInLink small /> : null;
}

function SignOut() {
  const out = useAction(async () => {
    const response = await fetch("/auth/logout", { method: "POST" });
    if (!response.ok) throw new ServerError(await response.text());
    forgetDrafts();
    window.location.reload();
  });
  return (
    <>
      <button type="button" className="button small" disabled={out.busy} onClick={() => void out.run()}>
        Sign out
      </button>
      {out.error && (
        <span className="wrong" role="alert">
          {out.error.message}
        </span>
      )}
    </>
  );
}

/** Asks for the token that the server wants, and loads the page again with it. */
export function TokenDialog() {
  const wanted = useSyncExternalStore(session.listen, session.wanted);
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState(false);
  const [full, setFull] = useState(false);
  const provider = useProvider(wanted);
  const there = session.token() !== "";
  const valid = there && session.asked();
  const title = session.asked() ? "Use another token" : there ? "The server doesn't take this token" : "This server wants a token";
  return (
    <Dialog title={title} open={wanted} onClose={session.without}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          const kept = session.set(token.trim(), remember);
          setFull(!kept);
          if (kept) window.location.reload();
        }}
      >
        <Field label="Token" error={full ? "This browser can't keep the token: its storage is full. Clear this site's data." : undefined} hint="An administrator of the server makes tokens; the first one is in the file of its --token-file. It goes to this server only, and is never in an address.">
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
        {provider && valid && <p className="small soft">To sign in instead, first choose Forget the token, outside of this dialog.</p>}
        <div className="row">
          {provider && !valid && <SignInLink />}
          <button className="button primary" type="submit">
            Use it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** What ends it, where there is a token, with what was written under it. */
export function ForgetToken() {
  const there = useSyncExternalStore(session.listen, session.token) !== "";
  if (!there) return null;
  const forget = () => {
    session.forget();
    forgetDrafts(); // whoever comes next sees no program of this person's
    window.location.reload();
  };
  return (
    <button type="button" className="button small" onClick={forget}>
      Forget the token
    </button>
  );
}
