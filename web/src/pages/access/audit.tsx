import { useMemo } from "react";
import { useCaller } from "../../lib/caller";
import { moment, plural, short } from "../../lib/format";
import { usePages } from "../../lib/pages";
import { visible } from "../../lib/visible";
import { Choice, ActiveFilter, Search, TenantFilter, useFilter, useTenantFilter } from "../../ui/filters";
import { Empty, Failure, Loading, Notice, Page, Tag } from "../../ui/parts";
import { Table, type Column } from "../../ui/table";
import { SafeText } from "../../ui/safetext";
import { actorOf, entriesOf, type Entry } from "./auditlog";

const ages = [
  ["1", "The last hour"],
  ["24", "The last day"],
  ["168", "The last week"],
] as const;

const outcomes = [
  ["failed", "Failed"],
  ["ok", "OK"],
] as const;

/** Narrowing has the filters that a click in the table sets. */
export interface Narrowing {
  actor: (id: string) => void;
  action: (name: string) => void;
  object: (id: string) => void;
}

/** auditColumns returns the columns. A click on a caller, an action or an object filters by it. */
export function auditColumns(only: Narrowing): readonly Column<Entry>[] {
  return [
    { name: "Time", width: "9rem", cell: (row) => <span className="num" title={row.at}>{moment(row.at)}</span> },
    {
      name: "Caller",
      width: "minmax(9rem, 1.5fr)",
      cell: (row) => (
        <button type="button" className="button plain small" title={`${visible(row.actorName)} (${[row.actorKind, row.role, row.actorId].filter(Boolean).join(", ")}): show only these entries`} onClick={() => only.actor(actorOf(row))}>
          <SafeText text={row.actorName || row.actorKind.toLowerCase()} />
        </button>
      ),
    },
    {
      name: "Action",
      width: "minmax(9rem, 1fr)",
      cell: (row) => (
        <button type="button" className="button plain small" title="Show only these entries" onClick={() => only.action(row.action)}>
          {row.action}
        </button>
      ),
    },
    {
      name: "Object",
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
    { name: "Address", width: "9rem", cell: (row) => <span className="mono soft">{row.address ?? "–"}</span> },
  ];
}

const ofTenants: Column<Entry> = { name: "Tenant", width: "7rem", cell: (row) => row.tenant ?? <span className="soft">Server</span> };

/** Audit shows the audit log, newest first. */
export default function Audit() {
  const { caller, showTenants } = useCaller();
  const [tenant, setTenant] = useTenantFilter();
  const [action, setAction] = useFilter("action");
  const [actor, setActor] = useFilter("actor");
  const [object, setObject] = useFilter("object");
  const [outcome, setOutcome] = useFilter("outcome");
  const [inAddress, setAge] = useFilter("age");
  const age = ages.find(([hours]) => hours === inAddress)?.[0] ?? "";
  const failed = outcome === "failed" ? true : outcome === "ok" ? false : null;
  const source = useMemo(() => {
    const from = age ? new Date(Date.now() - Number(age) * 3_600_000).toISOString() : null;
    return entriesOf({ tenant: tenant || null, action: action || null, actorId: actor || null, objectId: object || null, failed, from });
  }, [tenant, action, actor, object, failed, age]);
  const { rows, more, hasMore, loading: asking, error, note, again } = usePages(source, 3_000);
  const loading = asking || !caller;
  const columns = auditColumns({ actor: setActor, action: setAction, object: setObject });
  const filtered = tenant || action || actor || object || failed !== null || age;
  return (
    <Page title="Audit log">
      <p className="soft">Changes and attempted changes, with their callers. Click a caller, an action or an object to filter by it.</p>
      <div className="filters">
        <Search label="Action" value={action} onChange={setAction} placeholder="Exact action: claimRunner" />
        <Choice label="Outcome" value={outcome} onChange={setOutcome} all="Any outcome" options={outcomes} />
        <Choice label="Time" value={age} onChange={setAge} all="Any time" options={ages} />
        {actor && <ActiveFilter to={`caller ${short(actor)}`} all="show all callers" onClear={() => setActor("")} />}
        {object && <ActiveFilter to={`object ${short(object)}`} all="show all objects" onClear={() => setObject("")} />}
        <TenantFilter value={tenant} onChange={setTenant} />
      </div>
      <Failure error={error} retry={again} />
      {note && (
        <Notice kind="warn">
          <SafeText text={note.message} />
        </Notice>
      )}
      <Table
        label="Audit log"
        columns={showTenants ? [...columns, ofTenants] : columns}
        pending={!caller}
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
            <Empty title="No entries">
              <p>{filtered ? "No entry matches these filters." : "Each change appears here with its caller and outcome."}</p>
            </Empty>
          )
        }
      />
    </Page>
  );
}
