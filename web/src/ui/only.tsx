import type { ReactNode } from "react";
import { Link } from "wouter";
import { described, inWords, type Caller, type Need } from "../lib/access";
import { ChangeToken } from "./changetoken";
import { Empty, Page } from "./parts";
import { Told } from "./told";

export interface OnlyProps {
  title: string;
  need: Need;
  caller: Caller | undefined;
  /** Whether the caller has the access. */
  met: boolean;
  children: ReactNode;
}

/** Only guards a page. Callers without the access see what is missing. While the caller is unknown, the page shows. */
export function Only({ title, need, caller, met, children }: OnlyProps) {
  if (met || !caller) return children;
  return (
    <Page title={title}>
      <Empty title={`This page needs ${inWords(need)}`}>
        <p>
          {caller.kind === "SESSION" ? "You are signed in as" : "You use the token"} <b><Told text={caller.name} /></b>: {described(caller)}. Ask an administrator for a token with access to this page.
        </p>
        <ChangeToken />
        <Link href="/">Go to the overview</Link>
      </Empty>
    </Page>
  );
}
