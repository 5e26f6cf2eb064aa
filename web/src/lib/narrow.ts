import { useSyncExternalStore } from "react";

const narrow = window.matchMedia("(max-width: 40rem)");

/**
 * listen calls back when the window becomes narrow or wide, until the returned function is called.
 */
function listen(listener: () => void): () => void {
  narrow.addEventListener("change", listener);
  return () => narrow.removeEventListener("change", listener);
}

/** useNarrow reports whether the window is as narrow as a phone's (40 rem). */
export function useNarrow(): boolean {
  return useSyncExternalStore(listen, () => narrow.matches);
}
