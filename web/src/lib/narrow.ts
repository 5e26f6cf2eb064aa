import { useSyncExternalStore } from "react";

const narrow = window.matchMedia("(max-width: 40rem)");

function listen(listener: () => void): () => void {
  narrow.addEventListener("change", listener);
  return () => narrow.removeEventListener("change", listener);
}

/** Whether the window is as narrow as a telephone. */
export function useNarrow(): boolean {
  return useSyncExternalStore(listen, () => narrow.matches);
}
