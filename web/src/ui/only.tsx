import type { ReactNode } from "react";
import { Link } from "wouter";
import { describeCaller, describeNeed, type Caller, type Need } from "../lib/access";
import { ChangeToken } from "./changetoken";
import { Empty, Page } from "./parts";
import { SafeText } from "./safetext";

export interface OnlyProps {
  title: string;
  need: Need;
  caller: Caller | undefined;
  /** Whether the caller has the access. */
  met: boolean;
  children: ReactNode;
}

/**
 * Only guards a page. Callers without the access see what is missing. While the caller is unknown, the page shows.
 */
export function Only({ title, need, caller, met, children }: OnlyProps) {
  if (met || !caller) return children;
  return (
    <Page title={title}>
      <Empty title={`This page needs ${describeNeed(need)}`}>
        <p>
          {caller.kind === "SESSION" ? "You are signed in as" : "You use the token"} <b><SafeText text={caller.name} /></b>: {describeCaller(caller)}. Ask an administrator for a token with access to this page.
        </p>
        <ChangeToken />
        <Link href="/">Go to the overview</Link>
      </Empty>
    </Page>
  );
}
