// Storage in this browser. It can be full or forbidden.

/** store stores a text; it returns whether that worked. */
export function store(storage: Pick<Storage, "setItem">, key: string, text: string): boolean {
  try {
    storage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

/** draftKey is the storage key of the playground's program. */
export const draftKey = "rockpool.playground";

/** forgetDrafts removes the user's programs from this tab and this browser. */
export function forgetDrafts() {
  for (const storage of [sessionStorage, localStorage]) storage.removeItem(draftKey);
}
