import type { ReactNode } from "react";
import type { Needed } from "../lib/access";
import { useCaller } from "../lib/caller";

/** Offer shows its children to callers with the access. Until the caller is known it reserves their place. */
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
