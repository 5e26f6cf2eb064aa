// A link to one execution has its id in the path and the grant in the fragment. Browsers don't send the fragment to
// any server, and it isn't in a Referer.
const path = "/share/";

/** shareLink returns the link that lets people without a token watch an execution. */
export function shareLink(origin: string, executionId: string, grant: string): string {
  return `${origin}${path}${encodeURIComponent(executionId)}#grant=${encodeURIComponent(grant)}`;
}

/** sharedId returns the execution id of a shared link; undefined for other pages. */
export function sharedId(pathname: string): string | undefined {
  if (!pathname.startsWith(path)) return undefined;
  try {
    return decodeURIComponent(pathname.slice(path.length));
  } catch {
    return "";
  }
}

/** grantOf returns the grant in a fragment; "" if there is none or it is malformed. */
export function grantOf(hash: string): string {
  const text = new URLSearchParams(hash.slice(1)).get("grant") ?? "";
  return /^rpg_[\w.-]+$/.test(text) ? text : "";
}
