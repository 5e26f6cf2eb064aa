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
  /** Whether the caller meets the need, as far as it is known. */
  met: boolean;
  children: ReactNode;
}

/** A page for those who meet a need. Others read what is missing, and what to do. Until the caller is known, the server decides. */
export function Only({ title, need, caller, met, children }: OnlyProps) {
  if (met || !caller) return children;
  return (
    <Page title={title}>
      <Empty title={`This page needs ${inWords(need)}`}>
        <p>
          {caller.kind === "SESSION" ? "You are signed in as" : "You use the token"} <b><Told text={caller.name} /></b>: {described(caller)}. Ask an administrator for a token that may see this page.
        </p>
        <ChangeToken />
        <Link href="/">To the overview</Link>
      </Empty>
    </Page>
  );
}
