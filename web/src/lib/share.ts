// A link to one execution: its id is in the path, and the grant in the fragment, which
// browsers send to no server, and which is in no Referer.
const path = "/share/";

/** The link by which people without a token see an execution. */
export function shareLink(origin: string, executionId: string, grant: string): string {
  return `${origin}${path}${encodeURIComponent(executionId)}#grant=${encodeURIComponent(grant)}`;
}

/** The execution that an address shares; undefined if it is another page's. */
export function sharedId(pathname: string): string | undefined {
  if (!pathname.startsWith(path)) return undefined;
  try {
    return decodeURIComponent(pathname.slice(path.length));
  } catch {
    return "";
  }
}

/** The grant in a fragment; "" if there is none. What looks otherwise is no grant, and used as nothing. */
export function grantOf(hash: string): string {
  const text = new URLSearchParams(hash.slice(1)).get("grant") ?? "";
  return /^rpg_[\w.-]+$/.test(text) ? text : "";
}
