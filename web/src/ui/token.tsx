import { useEffect, useState, useSyncExternalStore } from "react";
import { useLocation, useSearch } from "wouter";
import { ServerError } from "../lib/request";
import { useCaller } from "../lib/caller";
import { useAction } from "../lib/hooks";
import { session } from "../lib/session";
import { forgetDrafts } from "../lib/store";
import { Dialog, Field } from "./parts";

const tryEvery = 3_000;

/** useProvider reports whether people can sign in at this server. After a failure it asks again every 3 s. */
function useProvider(ask: boolean): boolean {
  const [configured, setConfigured] = useState(false);
  useEffect(() => {
    if (!ask) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        const response = await fetch("/auth/provider", { signal: stop.signal });
        if (!response.ok) throw new Error(response.statusText);
        const provider = (await response.json()) as { configured: boolean };
        setConfigured(provider.configured);
      } catch {
        if (!stop.signal.aborted) timer = setTimeout(() => void load(), tryEvery); // meanwhile only a token works
      }
    };
    void load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [ask]);
  return configured;
}

/**
 * SignInLink leads to the provider and from there back to this page. It forgets the token, which would take precedence
 * over the session. So offer it only if there is no token or the server rejects it.
 */
function SignInLink({ small }: { small?: boolean }) {
  // The hooks re-render the link when the address changes: it leads back to the current page.
  useLocation();
  useSearch();
  const back = new URLSearchParams({ return: window.location.pathname + window.location.search });
  return (
    <a className={small ? "button small" : "button"} href={`/auth/login?${back}`} onClick={session.forget}>
      Sign in
    </a>
  );
}

/** SignIn offers to sign out of a session, or to sign in while the caller is anonymous or unauthenticated. */
export function SignIn() {
  const { caller, error } = useCaller();
  const outside = caller ? caller.kind === "ANONYMOUS" : error?.code === "UNAUTHENTICATED";
  const provider = useProvider(outside);
  if (caller?.kind === "SESSION") return <SignOut />;
  return outside && provider ? <SignInLink small /> : null;
}

/**
 * SignOut ends the session of a caller that signed in through the provider. It also removes the
 * stored drafts.
 */
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

/** TokenDialog asks for the token that the server requires, and reloads the page with it. */
export function TokenDialog() {
  const wanted = useSyncExternalStore(session.listen, session.tokenRequired);
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState(false);
  const [full, setFull] = useState(false);
  const provider = useProvider(wanted);
  const there = session.token() !== "";
  const valid = there && session.changeRequested();
  const title = session.changeRequested() ? "Use another token" : there ? "The server rejected this token" : "This server requires a token";
  return (
    <Dialog title={title} open={wanted} onClose={session.dismiss}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          const kept = session.set(token.trim(), remember);
          setFull(!kept);
          if (kept) window.location.reload();
        }}
      >
        <Field label="Token" error={full ? "This browser can't store the token because its storage is full. Clear this site's data and try again." : undefined} hint="Ask an administrator of the server for a token. The first one is in the file that --token-file names. The token is sent only to this server and never appears in an address.">
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
            ? "All tabs use the token until you forget it here. Anyone who uses this browser profile can then use the server."
            : "This tab keeps the token until it is closed. Other tabs, including GraphiQL, ask for it again."}
        </p>
        {provider && valid && <p className="small soft">To sign in instead, close this dialog and choose Forget the token.</p>}
        <div className="row">
          {provider && !valid && <SignInLink />}
          <button className="button primary" type="submit">
            Use the token
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** ForgetToken removes the token and the playground's drafts from this browser. Without a token it shows nothing. */
export function ForgetToken() {
  const there = useSyncExternalStore(session.listen, session.token) !== "";
  if (!there) return null;
  const forget = () => {
    session.forget();
    forgetDrafts(); // the next user must not see this user's programs
    window.location.reload();
  };
  return (
    <button type="button" className="button small" onClick={forget}>
      Forget the token
    </button>
  );
}
