import { Link } from "wouter";
import { roles, type Caller } from "../../lib/access";
import { useCaller } from "../../lib/caller";
import { ChangeToken } from "../../ui/changetoken";
import { Card, Facts, Failure, Loading, Notice, Page } from "../../ui/parts";
import { SafeText } from "../../ui/safetext";

const kinds: Record<Caller["kind"], string> = {
  TOKEN: "Token",
  SESSION: "Sign-in with this browser",
  GRANT: "Grant",
  ANONYMOUS: "None: this server requires no token",
  SERVER: "The server itself",
};

/** You shows the caller and its access. */
export default function You() {
  const { caller, error, reload } = useCaller();
  return (
    <Page title="You" actions={caller && caller.kind !== "ANONYMOUS" && <ChangeToken />}>
      <Failure error={error} retry={reload} />
      {caller && <CallerDetails caller={caller} />}
      {!caller && !error && <Loading what="your access" />}
    </Page>
  );
}

/** CallerDetails shows a caller's access, and which roles have more rights. */
export function CallerDetails({ caller }: { caller: Caller }) {
  const rank = roles.findIndex(({ role }) => role === caller.role);
  return (
    <>
      {caller.kind === "ANONYMOUS" && (
        <Notice kind="warn" action={<Link className="button small" href="/access/tokens">Show tokens</Link>}>
          This server requires no token: everyone who can reach it can do everything. Create a first token to end that.
        </Notice>
      )}
      <Card title="Caller">
        <Facts>
          {[
            ["Authentication", kinds[caller.kind]],
            ["Name", <SafeText key="n" text={caller.name} />],
            ["Role", caller.role ?? "–"],
            ["Tenant", caller.tenant ?? "All tenants"],
          ]}
        </Facts>
      </Card>
      <Card title="Roles">
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
