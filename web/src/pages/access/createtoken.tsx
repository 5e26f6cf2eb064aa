import { useState } from "react";
import { roles, type Caller, type Role } from "../../lib/access";
import { request, type ServerError } from "../../lib/request";
import { graphql, type VariablesOf } from "../../lib/graphql";
import { useAction } from "../../lib/hooks";
import { session } from "../../lib/session";
import { Copy } from "../../ui/copy";
import { Dialog, Failure, Field, Notice } from "../../ui/parts";

const CreateMutation = graphql(`
  mutation CreateToken($input: CreateTokenInput!) {
    createToken(input: $input) {
      token {
        id
      }
      secret
    }
  }
`);
type Input = VariablesOf<typeof CreateMutation>["input"];

export interface CreateTokenProps {
  open: boolean;
  caller: Caller;
  tenants: readonly string[];
  onCreated: () => void;
  onClose: () => void;
}

/** CreateToken creates a token and shows its secret once. */
export function CreateToken({ open, caller, tenants, onCreated, onClose }: CreateTokenProps) {
  const first = caller.kind === "ANONYMOUS";
  const [secret, setSecret] = useState<string>();
  const create = useAction(async (input: Input) => {
    const { createToken } = await request(CreateMutation, { input });
    // The server now requires a token: without it this page's next request would be refused.
    if (first) session.set(createToken.secret, false);
    setSecret(createToken.secret);
    onCreated();
  });
  const close = () => {
    create.clear();
    onClose();
    if (secret !== undefined && first) window.location.reload(); // with the token
    setSecret(undefined);
  };
  return (
    <Dialog title={secret === undefined ? "New token" : "Copy the token now"} open={open} onClose={secret === undefined ? close : () => {}}>
      {secret === undefined ? (
        <TokenForm first={first} allTenants={caller.tenant === null} tenants={tenants} busy={create.busy} error={create.error} onSubmit={(input) => void create.run(input)} onClose={close} />
      ) : (
        <Secret secret={secret} first={first} onClose={close} />
      )}
    </Dialog>
  );
}

/** Secret shows a new token until the user confirms the copy. The server can't show it again. */
export function Secret({ secret, first, onClose }: { secret: string; first: boolean; onClose: () => void }) {
  return (
    <>
      <Notice kind="warn">The token is shown only once: the server keeps no copy. Anyone with this token can use the server.</Notice>
      {first && <Notice kind="warn">The server now requires a token. This tab uses the new one until it is closed.</Notice>}
      <Copy label="The token" text={secret} hint="Programs send it as Authorization: Bearer TOKEN." />
      <div className="row">
        <button type="button" className="button primary" onClick={onClose}>
          I have copied it
        </button>
      </div>
    </>
  );
}

const day = 86_400;
/** lives lists the choices of a token's lifetime in seconds. 0 means that it never expires. */
const lives = [
  [0, "Never"],
  [day, "After a day"],
  [7 * day, "After a week"],
  [30 * day, "After 30 days"],
  [90 * day, "After 90 days"],
  [365 * day, "After a year"],
] as const;

export interface TokenFormProps {
  /** Whether the server requires no token yet: its first token must be an administrator's. */
  first: boolean;
  /** Whether the caller can choose the tenant. */
  allTenants: boolean;
  tenants: readonly string[];
  busy: boolean;
  error: ServerError | undefined;
  onSubmit: (input: Input) => void;
  onClose: () => void;
}

/** TokenForm is the form of a new token. The first token's role and tenant are fixed. */
export function TokenForm({ first, allTenants, tenants, busy, error, onSubmit, onClose }: TokenFormProps) {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Role>(first ? "ADMIN" : "CLIENT");
  const [tenant, setTenant] = useState("default");
  const [life, setLife] = useState(0);
  const client = role === "CLIENT";
  const choices = tenants.includes("default") ? tenants : ["default", ...tenants];
  const chosen = tenant === "" && client ? "default" : tenant; // a client needs a tenant
  const wrongAt = (field: string) => (error?.code === "INVALID_INPUT" && error.field.replace(/^input\./, "") === field ? error.message : undefined);
  const named = ["name", "role", "tenant", "expiresIn"].some((field) => wrongAt(field) && !(first && field !== "name"));
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        const ofTenant = first || !allTenants || chosen === "" ? null : chosen;
        onSubmit({ name: name.trim(), role, tenant: ofTenant, expiresIn: first || life === 0 ? null : life });
      }}
    >
      {first && (
        <Notice kind="warn">This server requires no token yet. Its first token is an administrator's for all tenants. Afterwards every caller needs a token, also programs that use the server now.</Notice>
      )}
      <Field label="Name" hint="The person or program that uses the token." error={wrongAt("name")}>
        {(tie) => <input {...tie} className="input" required maxLength={128} value={name} autoComplete="off" spellCheck={false} onChange={(event) => setName(event.target.value)} />}
      </Field>
      {!first && (
        <>
          <Field label="Role" hint={`It may ${roles.find((one) => one.role === role)!.may}.`} error={wrongAt("role")}>
            {(tie) => (
              <select {...tie} className="select" value={role} onChange={(event) => setRole(event.target.value as Role)}>
                {roles.map((one) => (
                  <option key={one.role}>{one.role}</option>
                ))}
              </select>
            )}
          </Field>
          {allTenants && (
            <Field label="Tenant" hint={client ? "A client's runners and executions belong to one tenant." : "The token gives access to this tenant only."} error={wrongAt("tenant")}>
              {(tie) => (
                <select {...tie} className="select" value={chosen} onChange={(event) => setTenant(event.target.value)}>
                  {!client && <option value="">All tenants</option>}
                  {choices.map((id) => (
                    <option key={id} value={id}>
                      {id}
                    </option>
                  ))}
                </select>
              )}
            </Field>
          )}
          <Field label="Expires" hint="You can revoke it at any time." error={wrongAt("expiresIn")}>
            {(tie) => (
              <select {...tie} className="select" value={life} onChange={(event) => setLife(Number(event.target.value))}>
                {lives.map(([seconds, text]) => (
                  <option key={seconds} value={seconds}>
                    {text}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </>
      )}
      {!named && <Failure error={error} />}
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="button primary" disabled={busy || name.trim() === ""}>
          Create the token
        </button>
      </div>
    </form>
  );
}
