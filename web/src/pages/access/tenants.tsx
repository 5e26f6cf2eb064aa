import { useState, type ReactNode } from "react";
import { Link } from "wouter";
import { request, ServerError } from "../../lib/request";
import { useCaller } from "../../lib/caller";
import { graphql } from "../../lib/graphql";
import { useAction, useQuery } from "../../lib/hooks";
import { Card, Dialog, Facts, Failure, Loading, Page } from "../../ui/parts";
import { TenantFragment, draftOf, inputOf, quotas, quotaUse, type Quota, type Tenant, type TenantDraft, type WrongField } from "./quotas";
import { TenantForm } from "./tenantform";

const TenantsQuery = graphql(
  `
    query Tenants {
      tenants {
        ...TenantParts
      }
    }
  `,
  [TenantFragment],
);

const PutMutation = graphql(`
  mutation PutTenant($input: PutTenantInput!) {
    putTenant(input: $input) {
      created
    }
  }
`);

const DeleteMutation = graphql(`
  mutation DeleteTenant($id: ID!) {
    deleteTenant(id: $id) {
      deleted
    }
  }
`);

type Editing = { tenant: Tenant | undefined } | undefined;

/** Tenants shows the tenants that the caller sees, with their quotas. */
export default function Tenants() {
  const { may, reload: known } = useCaller();
  const { data, error, reload } = useQuery(TenantsQuery, {}, { every: 2_000 });
  const [editing, setEditing] = useState<Editing>();
  const [deleting, setDeleting] = useState<string>();
  const changed = () => {
    reload();
    known();
  };
  const remove = useAction(async (id: string) => {
    await request(DeleteMutation, { id });
    setDeleting(undefined);
    changed();
  });
  const keep = () => {
    remove.clear();
    setDeleting(undefined);
  };
  const manages = may("tenants");
  return (
    <Page
      title="Tenants"
      actions={
        manages && (
          <button type="button" className="button primary" onClick={() => setEditing({ tenant: undefined })}>
            New tenant
          </button>
        )
      }
    >
      <p className="soft">A tenant is a group of callers with their own environments, runners and executions. Its quotas limit their total use.</p>
      <Failure error={error} retry={reload} />
      {!data && !error && <Loading what="the tenants" />}
      {data?.tenants.map((tenant) => (
        <TenantCard key={tenant.id} tenant={tenant} onEdit={manages ? () => setEditing({ tenant }) : undefined} onDelete={manages && tenant.id !== "default" ? () => setDeleting(tenant.id) : undefined} />
      ))}
      <Dialog title={editing?.tenant ? `Change tenant ${editing.tenant.id}` : "New tenant"} open={editing !== undefined} onClose={() => setEditing(undefined)}>
        {editing && (
          <Editor
            tenant={editing.tenant}
            onClose={() => setEditing(undefined)}
            onDone={() => {
              setEditing(undefined);
              changed();
            }}
          />
        )}
      </Dialog>
      <Dialog title={`Delete tenant ${deleting}?`} open={deleting !== undefined} onClose={keep}>
        <p>Its tokens are revoked, which ends their subscriptions, WebSockets and downloads. Its executions and their output are kept as long as others. A tenant with environments can't be deleted.</p>
        <Failure error={remove.error} />
        <div className="row">
          <button type="button" className="button" onClick={keep}>
            Keep it
          </button>
          <button type="button" className="button danger" disabled={remove.busy} onClick={() => deleting !== undefined && void remove.run(deleting)}>
            Delete {deleting}
          </button>
        </div>
      </Dialog>
    </Page>
  );
}

export interface TenantCardProps {
  tenant: Tenant;
  /** Undefined without the access to change tenants. */
  onEdit?: (() => void) | undefined;
  onDelete?: (() => void) | undefined;
}

/** TenantCard shows a tenant's quotas and their current use. */
export function TenantCard({ tenant, onEdit, onDelete }: TenantCardProps) {
  return (
    <Card
      title={tenant.id}
      aside={
        <span className="row tight">
          {onEdit && (
            <button type="button" className="button small" aria-label={`Change ${tenant.id}`} onClick={onEdit}>
              Change …
            </button>
          )}
          {onDelete && (
            <button type="button" className="button small danger" aria-label={`Delete ${tenant.id}`} onClick={onDelete}>
              Delete …
            </button>
          )}
        </span>
      }
    >
      <Facts>
        {[
          ["Weight", <span key="w" title="Turns of its waiting claims for each turn of a tenant of weight 1">{tenant.weight}</span>],
          ...quotas.map(({ name, label }): [string, ReactNode] => [label, <QuotaUse key={name} tenant={tenant} name={name} label={label} />]),
        ]}
      </Facts>
    </Card>
  );
}

/** QuotaUse shows a tenant's use of a quota. Waiting claims link to the queue. */
function QuotaUse({ tenant, name, label }: { tenant: Tenant; name: Quota; label: string }) {
  const { used, bound, text } = quotaUse(tenant, name);
  const full = bound !== null && used >= bound;
  return (
    <div className="meter">
      <span className={bound === null && used === 0 ? "soft" : full ? "num full" : "num"}>
        {name === "waiting" && used > 0 ? <Link href={`/access/queue?tenant=${tenant.id}`} aria-label={`${label}: ${text}`}>{text}</Link> : text}
      </span>
      {bound !== null && (
        <div className={full ? "meter-bar full" : "meter-bar"} aria-hidden>
          <span style={{ width: `${bound > 0 ? Math.min(100, (used / bound) * 100) : 100}%` }} />
        </div>
      )}
    </div>
  );
}

/** Editor creates or changes a tenant. */
function Editor({ tenant, onDone, onClose }: { tenant: Tenant | undefined; onDone: () => void; onClose: () => void }) {
  const [draft, setDraft] = useState<TenantDraft>(() => draftOf(tenant));
  const [wrong, setWrong] = useState<WrongField>();
  const put = useAction(async () => {
    const input = inputOf(draft);
    if ("message" in input) return setWrong(input);
    try {
      await request(PutMutation, { input });
    } catch (error) {
      if (!(error instanceof ServerError && error.code === "INVALID_INPUT" && error.field !== "")) throw error;
      return setWrong({ field: error.field.replace(/^input\./, ""), message: error.message });
    }
    onDone();
  });
  return (
    <TenantForm
      draft={draft}
      isNew={!tenant}
      wrong={wrong}
      busy={put.busy}
      error={put.error}
      onChange={(next) => {
        setDraft(next);
        setWrong(undefined);
      }}
      onSubmit={() => void put.run()}
      onClose={onClose}
    />
  );
}
