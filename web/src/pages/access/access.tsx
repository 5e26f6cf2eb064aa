import type { ComponentType } from "react";
import { Link, Redirect } from "wouter";
import { needs, type Needed } from "../../lib/access";
import { useCaller } from "../../lib/caller";
import { Only } from "../../ui/only";
import { Empty, Failure, Loading, Page } from "../../ui/parts";
import Audit from "./audit";
import Queue from "./queue";
import Tenants from "./tenants";
import Tokens from "./tokens";
import You from "./you";

interface Part {
  path: string;
  title: string;
  /** The required access; undefined admits every caller. */
  need?: Needed;
  page: ComponentType;
}

/** parts lists the pages of the section. A new page needs an entry here. */
const parts: readonly Part[] = [
  { path: "tokens", title: "Tokens", need: "tokens", page: Tokens },
  { path: "tenants", title: "Tenants", page: Tenants },
  { path: "queue", title: "Queue", page: Queue },
  { path: "audit", title: "Audit log", need: "audit", page: Audit },
  { path: "you", title: "You", page: You },
];

/** Access shows the section's pages that the caller has access to. */
export default function Access({ part }: { part: string | undefined }) {
  const { caller, error, may, reload } = useCaller();
  const mine = parts.filter(({ need }) => !need || may(need));
  if (part === undefined) {
    if (caller) return <Redirect to={`/access/${mine[0]!.path}`} replace />;
    return (
      <Page title="Access">
        {error ? <Failure error={error} retry={reload} /> : <Loading what="your access" />}
      </Page>
    );
  }
  const chosen = parts.find(({ path }) => path === part);
  if (!chosen) {
    return (
      <Page title="Access">
        <Empty title="No page has this address">
          <Link href="/access">Go to Access</Link>
        </Empty>
      </Page>
    );
  }
  const { title, need, page: Chosen } = chosen;
  return (
    <>
      <nav className="tabs" aria-label="Access">
        {mine.map(({ path, title: name }) => (
          <Link key={path} href={`/access/${path}`} aria-current={path === part ? "page" : undefined}>
            {name}
          </Link>
        ))}
      </nav>
      {need ? (
        <Only title={title} need={needs[need]} caller={caller} met={may(need)}>
          <Chosen />
        </Only>
      ) : (
        <Chosen />
      )}
    </>
  );
}
