import type { ReactNode } from "react";
import type { Needed } from "../lib/access";
import { useCaller } from "../lib/caller";

/** Shows its children to those who may use them. Until the caller is known it keeps their place, so that nothing moves. */
export function Offer({ to, children }: { to: Needed; children: ReactNode }) {
  const { caller, may } = useCaller();
  if (may(to)) return children;
  if (caller) return null;
  return (
    <span className="pending" inert>
      {children}
    </span>
  );
}
