// Paths in a runner, as the files panel uses them.

/** A path below a directory; an absolute one stays what it is. */
export function join(directory: string, name: string): string {
  if (name.startsWith("/")) return name;
  return directory === "/" ? `/${name}` : `${directory}/${name}`;
}

export function parent(directory: string): string {
  return directory.slice(0, directory.lastIndexOf("/")) || "/";
}

export function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Why a name can't be a new entry's; undefined where it can. */
export function wrongName(name: string): string | undefined {
  if (name === "") return "Give it a name.";
  if (name.split("/").some((part) => part === "." || part === "..") || name.endsWith("/")) return "A name can't be . or .., or end with a slash.";
  return undefined;
}

/** What is chosen after a click on a path. With a range everything from the last click on becomes what the path becomes. */
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

/** A path that deletes more than the entry it names: the API takes a * at its end for everything in the directory. */
export function deletesAll(path: string): boolean {
  return nameOf(path) === "*";
}
