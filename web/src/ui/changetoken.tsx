import { session } from "../lib/session";

/** Offers to enter another token, which may do more. */
export function ChangeToken() {
  if (session.borrows()) return null;
  return (
    <button type="button" className="button small" onClick={session.change}>
      Use another token
    </button>
  );
}
