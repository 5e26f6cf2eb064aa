// What this browser stores of a person's, where it can: it can be full, or may store nothing.

/** Stores a text; it returns whether that worked. */
export function store(storage: Pick<Storage, "setItem">, key: string, text: string): boolean {
  try {
    storage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

/** What is written in the playground. */
export const draftKey = "rockpool.playground";

/** Removes what a person wrote here, in this tab and in this browser. */
export function forgetDrafts() {
  for (const storage of [sessionStorage, localStorage]) storage.removeItem(draftKey);
}
