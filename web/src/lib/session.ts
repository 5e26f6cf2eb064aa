import { store } from "./store";

// The token, where the server wants one. It lives as long as the tab does, or,
// where a person asked for that, in this browser until it is forgotten. It is in
// no address.
const key = "rockpool.token";
const listeners = new Set<() => void>();
let wanted = false;
let asked = false;
let grant: string | undefined;

function changed() {
  for (const listener of listeners) listener();
}

export const session = {
  token(): string {
    return sessionStorage.getItem(key) ?? localStorage.getItem(key) ?? "";
  },
  /** Whether the server refused what it was given. */
  wanted(): boolean {
    return wanted;
  },
  /** The server wants a token, or another one. A page that acts with a grant has no other. */
  want() {
    if (wanted || grant !== undefined) return;
    wanted = true;
    asked = false;
    changed();
  },
  /** A person wants to use another token, though the server takes this one. */
  change() {
    wanted = true;
    asked = true;
    changed();
  },
  /** Whether it is a person that wants another token. */
  asked(): boolean {
    return asked;
  },
  /**
   * Acts with a grant and nothing else for as long as the page is there: the token of
   * this browser stays where it is, and is sent nowhere. The grant is stored nowhere.
   */
  borrow(text: string) {
    grant = text;
    changed();
  },
  /** Whether it acts with a grant. */
  borrows(): boolean {
    return grant !== undefined;
  },
  /** None was given; who asks without it will be refused, and it is wanted again. */
  without() {
    wanted = false;
    changed();
  },
  /** Keeps a token; it returns whether the browser's storage had room for it. */
  set(token: string, remember: boolean): boolean {
    if (!remember) localStorage.removeItem(key);
    if (!store(sessionStorage, key, token) || (remember && !store(localStorage, key, token))) return false;
    wanted = false;
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

/** What a request shows for it. */
export function credentials(): Record<string, string> {
  const token = grant ?? session.token();
  return token === "" ? {} : { Authorization: `Bearer ${token}` };
}
