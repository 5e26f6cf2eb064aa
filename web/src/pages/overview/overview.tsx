import { Link } from "wouter";
import { useActivity, type Activity } from "../../lib/activity";
import { useCaller } from "../../lib/caller";
import { count, plural } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { problemsFirst, useAlerts, useEnvironments } from "../../lib/pools";
import { Search, useFilter } from "../../ui/filters";
import { CapacityFragment, Figure, Figures, Allocated, type Capacity } from "../../ui/now";
import { Card, Empty, Failure, Loading, Notice, Page, Tag } from "../../ui/parts";
import { Offer } from "../../ui/offer";
import { PoolRow } from "./poolrow";
import { visible } from "../../lib/visible";

const ClusterQuery = graphql(
  `
    query ClusterNow {
      cluster {
        capacity {
          ...CapacityParts
        }
      }
    }
  `,
  [CapacityFragment],
);

// A separate query: health matters most when the cluster's capacity is unavailable.
const HealthQuery = graphql(`
  query HealthNow {
    health {
      status
      components {
        name
        status
        since
        message
      }
      attacks {
        at
        version
        isolation
        tried
        held
        failed
      }
    }
  }
`);

/** Overview shows all environments, live, and the server's health. */
export function Overview() {
  const { caller, error: unknown, may, showTenants } = useCaller();
  const { environments: loaded, error, reload } = useEnvironments();
  // Rows wait until it is known whether they show tenants, so that they don't change afterwards.
  const environments = caller || unknown ? loaded : undefined;
  const alerts = useAlerts();
  const activity = useActivity();
  const [search, setSearch] = useFilter("search");
  const found = environments && problemsFirst(environments, alerts, search);
  const cluster = useQuery(ClusterQuery, {}, { every: 5_000, skip: !may("cluster") });
  const health = useQuery(HealthQuery, {}, { every: 5_000 });
  const retry = () => {
    reload();
    cluster.reload();
    activity.reload();
    health.reload();
  };
  return (
    <Page
      title="Overview"
      actions={
        <>
          <Offer to="use">
            <Link href="/playground" className="button">
              Run a program
            </Link>
          </Offer>
          <Offer to="change">
            <Link href="/new-environment" className="button primary">
              New environment
            </Link>
          </Offer>
        </>
      }
    >
      <Failure error={error ?? health.error ?? cluster.error ?? activity.error} retry={retry} />
      <Summary environments={environments} activity={activity.data} capacity={!caller || may("cluster") ? { now: cluster.data?.cluster.capacity } : undefined} health={health.data?.health} />
      {(environments || !error) && (
        <Card title="Environments" bare aside={<Aside environments={environments?.length} search={search} onSearch={setSearch} />}>
          {!environments && <Loading what="the environments" />}
          {environments?.length === 0 && (
            <Empty title="No environments yet">
              <p>An environment defines the image, the limits and the number of warm runners.</p>
              {may("change") && (
                <Link href="/new-environment" className="button">
                  Create an environment
                </Link>
              )}
            </Empty>
          )}
          {found?.length === 0 && search !== "" && (
            <Empty title="No matching environments">
              <p>No environment's id contains this text.</p>
            </Empty>
          )}
          {found?.map((environment) => (
            <PoolRow key={environment.id} environment={environment} alert={alerts.get(environment.id)} tenant={showTenants} />
          ))}
        </Card>
      )}
    </Page>
  );
}

/** Aside shows the number of pools; with more than 8 it is a search. */
function Aside({ environments, search, onSearch }: { environments: number | undefined; search: string; onSearch: (text: string) => void }) {
  if (environments === undefined) return null;
  if (environments <= 8 && search === "") return <span className="soft small">{plural(environments, "pool")}</span>;
  return <Search label="Part of an environment's id" placeholder={`Of ${plural(environments, "environment")}`} value={search} onChange={onSearch} />;
}

type Health = ResultOf<typeof HealthQuery>["health"];

interface SummaryProps {
  environments: { pool: { idle: number; claimed: number } }[] | undefined;
  activity: Activity | undefined;
  /** Undefined for callers without access to it. */
  capacity: { now: Capacity | undefined } | undefined;
  health: Health | undefined;
}

/** Summary shows the totals of all pools, and the components of the server with a problem. */
export function Summary({ environments, activity, capacity: room, health }: SummaryProps) {
  const sum = (of: "idle" | "claimed") => environments?.reduce((n, environment) => n + environment.pool[of], 0);
  // Problems of a pool are shown in its row.
  const wrong = health?.components.filter((part) => part.status !== "OK" && !part.name.startsWith("pool ")) ?? [];
  return (
    <>
      <Card>
        <div className="summary">
          <div className="stack tight">
            <div className="small soft">Health</div>
            <div>{health ? <Verdict health={health} /> : <Tag tone="quiet">Checking</Tag>}</div>
            {health?.attacks && <Attacks attacks={health.attacks} />}
          </div>
          <Figures activity={activity} />
          <Figure name="Idle runners" value={sum("idle")} />
          <Figure name="Claimed runners" value={sum("claimed")} />
          {room && <Allocated capacity={room.now} />}
        </div>
      </Card>
      {wrong.map((part) => (
        <Notice key={part.name} kind={part.status === "DOWN" ? "bad" : "warn"}>
          <b>{part.name}</b> {part.status === "DOWN" ? "is down" : "is degraded"}
          {part.message && visible(`: ${part.message}`)}
        </Notice>
      ))}
    </>
  );
}

/** Attacks shows the result of the last `rockpool doctor --attack`. */
export function Attacks({ attacks }: { attacks: NonNullable<Health["attacks"]> }) {
  const { held, tried, failed, isolation, version, at } = attacks;
  const title = [`rockpool doctor --attack, ${at}, version ${version}`, ...failed.map((name) => `not blocked: ${visible(name)}`)].join("\n");
  return (
    <div className="small soft" title={title}>
      {count(held)} of {count(tried)} attacks blocked, {isolation}, {at.slice(0, 10)}
    </div>
  );
}

/** Verdict is the server's health in one tag. It names at most two components. */
export function Verdict({ health }: { health: Pick<Health, "status" | "components"> }) {
  const wrong = health.components.filter((part) => part.status !== "OK");
  if (health.status === "OK" || wrong.length === 0) return <Tag tone="good">Healthy</Tag>;
  // Components that are down come first.
  const names = [...wrong.filter((part) => part.status === "DOWN"), ...wrong.filter((part) => part.status !== "DOWN")].map((part) => part.name);
  const named = names.length > 2 ? `${names[0]} and ${count(names.length - 1)} more` : names.join(", ");
  return (
    <span title={wrong.map((part) => visible(`${part.name}: ${part.message || part.status.toLowerCase()}`)).join("\n")}>
      <Tag tone={health.status === "DOWN" ? "bad" : "warn"}>
        {health.status === "DOWN" ? "Down" : "Degraded"}: {named}
      </Tag>
    </span>
  );
}
