const shortest = 250; // ms between the end of one and the next

/**
 * paced calls `work` immediately and then every `every` ms, one call at a time. `soon` requests an earlier call.
 * Calls take at most a fifth of the time. On a hidden page they are ten times as rare. `work` must not throw.
 */
export function paced(work: () => Promise<void>, every: number): { soon: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let working = false;
  let wanted = false;
  let stopped = false;
  let free = 0;
  /** plan replaces the planned call. `at` is a time of performance.now(). */
  const plan = (at: number) => {
    clearTimeout(timer);
    timer = setTimeout(() => void run(), Math.max(0, at - performance.now()));
  };
  const run = async () => {
    working = true;
    wanted = false;
    const began = performance.now();
    await work();
    working = false;
    if (stopped) return;
    const now = performance.now();
    free = now + Math.max(shortest, (now - began) * 4);
    plan(wanted ? free : Math.max(free, now + (document.visibilityState === "hidden" ? every * 10 : every)));
  };
  void run();
  return {
    soon: () => {
      if (working) wanted = true;
      else if (!stopped) plan(free);
    },
    stop: () => {
      stopped = true;
      clearTimeout(timer);
    },
  };
}
