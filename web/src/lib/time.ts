import { useSyncExternalStore } from "react";

// One clock for all that says how long ago something was.
const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function listen(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const tell of listeners) tell();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The time, to the second; what uses it is shown again each second. */
export function useNow(): number {
  return useSyncExternalStore(listen, () => now);
}
