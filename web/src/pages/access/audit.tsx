import { useMemo } from "react";
import { useCaller } from "../../lib/caller";
import { moment, plural, short } from "../../lib/format";
import { usePages } from "../../lib/pages";
import { visible } from "../../lib/visible";
import { Choice, Search, TenantFilter, useFilter } from "../../ui/filters";
import { Empty, Failure, Loading, Page, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { Told } from "../../ui/told";
import { actorOf, entriesOf, type Entry } from "./auditlog";

const ages = [
  ["1", "The last hour"],
  ["24", "The last day"],
  ["168", "The last week"],
] as const;

export interface Narrowing {
  actor: (id: string) => void;
  action: (name: string) => void;
  object: (id: string) => void;
}

/** The columns. A click on who, what or on which object shows only entries with the same. */
export function auditColumns(only: Narrowing): readonly Column<Entry>[] {
  return [
    { name: "When", width: "9rem", cell: (row) => <span className="num" title={row.at}>{moment(row.at)}</span> },
    {
      name: "Who",
      width: "minmax(9rem, 1.5fr)",
      cell: (row) => (
        <button type="button" className="button plain small" title={`${visible(row.actorName)} (${[row.actorKind, row.role, row.actorId].filter(Boolean).join(", ")}): show only these entries`} onClick={() => only.actor(actorOf(row))}>
          <Told text={row.actorName || row.actorKind.toLowerCase()} />
        </button>
      ),
    },
    {
      name: "Did what",
      width: "minmax(9rem, 1fr)",
      cell: (row) => (
        <button type="button" className="button plain small" title="Show only these entries" onClick={() => only.action(row.action)}>
          {row.action}
        </button>
      ),
    },
    {
      name: "To which object",
      width: "minmax(11rem, 1.5fr)",
      cell: (row) =>
        row.objectId ? (
          <button type="button" className="button plain small" title={`${row.objectId}: show only these entries`} onClick={() => only.object(row.objectId)}>
            {row.objectKind.toLowerCase()} <span className="mono">{short(row.objectId)}</span>
          </button>
        ) : (
          <span className="soft">{row.objectKind.toLowerCase() || "–"}</span>
        ),
    },
    { name: "Outcome", width: "minmax(10rem, 1fr)", cell: (row) => <Tag tone={row.outcome === "OK" ? "good" : "bad"}>{row.outcome}</Tag> },
    { name: "From where", width: "9rem", cell: (row) => <span className="mono soft">{row.address ?? "–"}</span> },
  ];
}

const ofTenants: Column<Entry> = { name: "Tenant", width: "7rem", cell: (row) => row.tenant ?? <span className="soft">Server</span> };

/** Who did what, the latest first. */
export default function Audit() {
  const { caller, showTenants } = useCaller();
  const [tenant, setTenant] = useFilter("tenant");
  const [action, setAction] = useFilter("action");
  const [actor, setActor] = useFilter("actor");
  const [object, setObject] = useFilter("object");
  const [age, setAge] = useFilter("age");
  const source = useMemo(() => {
    const hours = Number(age);
    const from = hours > 0 ? new Date(Date.now() - hours * 3_600_000).toISOString() : null;
    return entriesOf({ tenant: tenant || null, action: action || null, actorId: actor || null, objectId: object || null, from });
  }, [tenant, action, actor, object, age]);
  const { rows, more, hasMore, loading, error, again } = usePages(source, 3_000);
  const columns = auditColumns({ actor: setActor, action: setAction, object: setObject });
  const filtered = tenant || action || actor || object || age;
  return (
    <Page title="Audit log">
      <div className="filters">
        <Search label="Action" value={action} onChange={setAction} placeholder="Action, as claimRunner" />
        <Choice label="Since when" value={age} onChange={setAge} all="Any time" options={ages} />
        <TenantFilter value={tenant} onChange={setTenant} />
        {actor && (
          <button type="button" className="button small" onClick={() => setActor("")}>
            Only caller {short(actor)} ×
          </button>
        )}
        {object && (
          <button type="button" className="button small" onClick={() => setObject("")}>
            Only object {short(object)} ×
          </button>
        )}
      </div>
      <Failure error={error} retry={again} />
      <Table
        label="Audit log"
        columns={caller?.tenant === null && showTenants ? [...columns, ofTenants] : columns}
        rows={rows}
        rowKey={(row) => row.id}
        total={rows.length}
        least={showTenants ? "72rem" : "64rem"}
        onEnd={more}
        foot={loading ? "" : `${plural(rows.length, "entry", "entries")}${hasMore ? "; scrolling loads more" : ""}`}
        empty={
          loading ? (
            error ? null : <Loading what="the audit log" />
          ) : (
            <Empty title="No entries here">
              <p>{filtered ? "None matches these filters." : "Each change shows here, with who made it and what came of it."}</p>
            </Empty>
          )
        }
      />
    </Page>
  );
}
