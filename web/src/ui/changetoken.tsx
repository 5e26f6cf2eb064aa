import { session } from "../lib/session";

/** ChangeToken offers to enter another token. Pages that use a grant don't show it. */
export function ChangeToken() {
  if (session.hasGrant()) return null;
  return (
    <button type="button" className="button small" onClick={session.change}>
      Use another token
    </button>
  );
}
