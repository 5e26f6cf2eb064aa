// The token, where the server wants one. It lives as long as the tab does, or,
// where a person asked for that, in this browser until it is forgotten. It is in
// no address.
const key = "rockpool.token";
const listeners = new Set<() => void>();
let wanted = false;

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
  /** The server wants a token, or another one. */
  want() {
    if (wanted) return;
    wanted = true;
    changed();
  },
  /** None was given; who asks without it will be refused, and it is wanted again. */
  without() {
    wanted = false;
    changed();
  },
  set(token: string, remember: boolean) {
    sessionStorage.setItem(key, token);
    if (remember) localStorage.setItem(key, token);
    else localStorage.removeItem(key);
    wanted = false;
    changed();
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
  const token = session.token();
  return token === "" ? {} : { Authorization: `Bearer ${token}` };
}
