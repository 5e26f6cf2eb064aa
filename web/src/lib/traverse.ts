// Guards that run before the router when the browser goes back or forward. Browsers call a window's listeners in the
// order in which they were added, so the app imports this module before its router listens.

type Guard = (event: PopStateEvent) => void;

const guards = new Set<Guard>();

window.addEventListener("popstate", (event) => guards.forEach((guard) => guard(event)));

/**
 * beforeTraversal calls a guard before the router on each step back or forward, until the returned function is
 * called.
 */
export function beforeTraversal(guard: Guard): () => void {
  guards.add(guard);
  return () => void guards.delete(guard);
}
