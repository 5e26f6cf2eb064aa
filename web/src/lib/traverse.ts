// Who is asked before the router when the browser goes back or forward. Browsers call a window's own
// listeners in the order in which they were added: the app imports this before its router listens.

type Guard = (event: PopStateEvent) => void;

const guards = new Set<Guard>();

window.addEventListener("popstate", (event) => guards.forEach((guard) => guard(event)));

/** Has a guard see each step back and forward before the router does, until the returned function is called. */
export function beforeTraversal(guard: Guard): () => void {
  guards.add(guard);
  return () => void guards.delete(guard);
}
