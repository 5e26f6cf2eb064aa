// Paths in a runner, for the files panel.

/** join resolves a name in a directory; an absolute name stays unchanged. */
export function join(directory: string, name: string): string {
  if (name.startsWith("/")) return name;
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

/** parent returns the directory of a path; that of the root is the root. */
export function parent(directory: string): string {
  return directory.slice(0, directory.lastIndexOf("/")) || "/";
}

/** nameOf returns the last name of a path. */
export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** wrongName says why a new entry can't have this name; undefined if it can. */
export function wrongName(name: string): string | undefined {
  if (name === "") return "Enter a name.";
  if (name.split("/").some((part) => part === "." || part === "..") || name.endsWith("/")) return "A name can't be . or .., or end with a slash.";
  return undefined;
}

/**
 * choose returns the selection after a click on a path. With `from` it gives all paths in between the clicked one's
 * new state.
 */
export function choose(chosen: ReadonlySet<string>, paths: readonly string[], path: string, from?: string): Set<string> {
  const after = new Set(chosen);
  const ends = [paths.indexOf(from ?? path), paths.indexOf(path)];
  const range = ends.includes(-1) ? [path] : paths.slice(Math.min(...ends), Math.max(...ends) + 1);
  for (const one of range) {
    if (chosen.has(path)) after.delete(one);
    else after.add(one);
  }
  return after;
}
