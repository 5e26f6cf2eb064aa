import { store } from "./store";

// The token for servers that require one. It is kept for the tab, or, on the user's request, in this browser until
// the user forgets it. It never appears in an address.
const key = "rockpool.token";
const listeners = new Set<() => void>();
let required = false;
let requested = false;
let grant: string | undefined;

/** changed notifies the listeners of every change of the session. */
function changed() {
  for (const listener of listeners) listener();
}

/** session is the token or the grant that this page uses. */
export const session = {
  token(): string {
    return sessionStorage.getItem(key) ?? localStorage.getItem(key) ?? "";
  },
  /** Whether a token is required: the server rejected the current one, or the user requested another. */
  tokenRequired(): boolean {
    return required;
  },
  /** Records that the server requires a token or rejected the current one. Pages that use a grant ignore this. */
  requireToken() {
    if (required || grant !== undefined) return;
    required = true;
    requested = false;
    changed();
  },
  /** Records that the user wants another token, although the server accepts this one. */
  change() {
    required = true;
    requested = true;
    changed();
  },
  /** Whether the user, not the server, requested another token. */
  changeRequested(): boolean {
    return requested;
  },
  /**
   * Uses only a grant until the page is left. The browser's token stays stored and isn't sent. The grant isn't stored.
   */
  actWithGrant(text: string) {
    grant = text;
    changed();
  },
  /** Whether the page uses a grant. */
  hasGrant(): boolean {
    return grant !== undefined;
  },
  /** Closes the prompt without a token. The next refused request opens it again. */
  dismiss() {
    required = false;
    changed();
  },
  /** Stores a token; it returns false if the browser's storage is full. */
  set(token: string, remember: boolean): boolean {
    if (!remember) localStorage.removeItem(key);
    if (!store(sessionStorage, key, token) || (remember && !store(localStorage, key, token))) return false;
    required = false;
    changed();
    return true;
  },
  forget() {
    sessionStorage.removeItem(key);
    localStorage.removeItem(key);
    changed();
  },
  listen(listener: () => void): () => void {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

/** credentials returns the request headers with the grant or the token. */
export function credentials(): Record<string, string> {
  const token = grant ?? session.token();
  return token === "" ? {} : { Authorization: `Bearer ${token}` };
}
