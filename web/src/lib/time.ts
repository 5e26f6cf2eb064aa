import { useSyncExternalStore } from "react";

// One clock for all components that show relative times.
const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

/** listen starts the clock for its first listener and stops it after the last one. */
function listen(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const notify of listeners) notify();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

/** useNow returns the time and re-renders the component every second. */
export function useNow(): number {
  return useSyncExternalStore(listen, () => now);
}
