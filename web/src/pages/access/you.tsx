import { Link } from "wouter";
import { roles, type Caller } from "../../lib/access";
import { useCaller } from "../../lib/caller";
import { ChangeToken } from "../../ui/changetoken";
import { Card, Facts, Failure, Loading, Notice, Page } from "../../ui/parts";
import { Told } from "../../ui/told";

const kinds: Record<Caller["kind"], string> = {
  TOKEN: "A token",
  SESSION: "Signing in with this browser",
  GRANT: "A grant",
  ANONYMOUS: "Nothing: this server needs no token",
  SERVER: "The server itself",
};

/** Who the caller is, and what that allows. */
export default function You() {
  const { caller, error, reload } = useCaller();
  return (
    <Page title="You" actions={caller && caller.kind !== "ANONYMOUS" && <ChangeToken />}>
      <Failure error={error} retry={reload} />
      {caller && <Who caller={caller} />}
      {!caller && !error && <Loading what="who you are" />}
    </Page>
  );
}

export function Who({ caller }: { caller: Caller }) {
  const rank = roles.findIndex(({ role }) => role === caller.role);
  return (
    <>
      {caller.kind === "ANONYMOUS" && (
        <Notice kind="warn" action={<Link className="button small" href="/access/tokens">To the tokens</Link>}>
          This server needs no token: everybody who reaches it may do everything. With its first token that ends.
        </Notice>
      )}
      <Card title="Who the server takes you for">
        <Facts>
          {[
            ["Known by", kinds[caller.kind]],
            ["Name", <Told key="n" text={caller.name} />],
            ["Role", caller.role ?? "–"],
            ["Tenant", caller.tenant ?? "All tenants"],
          ]}
        </Facts>
      </Card>
      <Card title="What the roles may do">
        <ol className="roles">
          {roles.map(({ role, may }, at) => (
            <li key={role} className={at > rank ? "soft" : undefined}>
              <b>{role}</b>
              {at === rank && " (you)"}: {may}
            </li>
          ))}
        </ol>
      </Card>
    </>
  );
}
