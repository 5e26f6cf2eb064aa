import { useEffect, useEffectEvent, useState } from "react";
import { useActivity } from "../../lib/activity";
import { graphql } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { useAlerts, useEnvironments } from "../../lib/pools";
import { CapacityFragment, Figures, CapacityNote, Allocated } from "../../ui/now";
import { Offer } from "../../ui/offer";
import { Card, Failure, Loading, Page } from "../../ui/parts";
import { Alerts, AlertHistoryQuery } from "./alerts";
import { DrainDialog, DrainingFragment, EndDrain, Progress } from "./drain";
import { Pools } from "./pools";
import { Scheduler } from "./scheduler";

const ClusterQuery = graphql(
  `
    query OperationsNow {
      cluster {
        kind
        capacity {
          ...CapacityParts
        }
        draining {
          ...DrainingParts
        }
      }
    }
  `,
  [CapacityFragment, DrainingFragment],
);

/** Operations shows the cluster's capacity, its pools by problem, the alerts and the scheduler. */
export default function Operations() {
  const activity = useActivity();
  const alerts = useAlerts();
  const pools = useEnvironments();
  const cluster = useQuery(ClusterQuery, {}, { every: 2_000 });
  const history = useQuery(AlertHistoryQuery, {}, { every: 5_000 });
  const [draining, setDraining] = useState(false);
  const now = cluster.data?.cluster;
  // The pools and the maintenance banner use the activity, which is polled less often.
  const agree = useEffectEvent((draining: boolean) => {
    if (activity.data && activity.data.draining !== draining) activity.reload();
  });
  useEffect(() => {
    if (now) agree(now.draining !== null);
  }, [now]);
  const failed = cluster.error ?? pools.error ?? activity.error;
  // Show all parts together: a part that arrives later would move those below it.
  const all = now && pools.environments && (history.data || history.error) && { ...now, environments: pools.environments };
  const changed = () => {
    cluster.reload();
    activity.reload();
  };
  const retry = () => {
    changed();
    pools.reload();
  };
  return (
    <Page
      title="Operations"
      actions={
        now && (
          <Offer to="drain">
            {now.draining ? (
              <EndDrain onDone={changed} />
            ) : (
              <button type="button" className="button" onClick={() => setDraining(true)}>
                Drain …
              </button>
            )}
          </Offer>
        )
      }
    >
      <Failure error={failed} retry={retry} />
      {!all && !failed && <Loading what="the cluster" />}
      {now?.draining && <Progress draining={now.draining} />}
      {all && (
        <>
          <Card>
            <div className="stack">
              <div className="summary">
                <Figures activity={activity.data} />
                <Allocated capacity={all.capacity} />
              </div>
              <CapacityNote capacity={all.capacity} machine={all.kind === "local" ? "This machine" : `The ${all.kind} cluster`} />
            </div>
          </Card>
          <Pools environments={all.environments} alerts={alerts} />
          <Alerts standing={alerts} history={history.data?.poolAlertHistory} error={history.error} retry={history.reload} />
          <Scheduler />
        </>
      )}
      <DrainDialog open={draining} onClose={() => setDraining(false)} onDone={changed} />
    </Page>
  );
}
