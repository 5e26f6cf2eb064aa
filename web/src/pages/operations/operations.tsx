import { useState } from "react";
import { useActivity } from "../../lib/activity";
import { graphql } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { useAlerts, useEnvironments } from "../../lib/pools";
import { CapacityFragment, Figures, Meaning, Promised } from "../../ui/now";
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

/** What an operator looks at first: what is wrong, how much room there is, and what waits for it. */
export default function Operations() {
  const activity = useActivity();
  const alerts = useAlerts();
  const pools = useEnvironments();
  const cluster = useQuery(ClusterQuery, {}, { every: 2_000 });
  const history = useQuery(AlertHistoryQuery, {}, { every: 5_000 });
  const [draining, setDraining] = useState(false);
  const now = cluster.data?.cluster;
  const changed = () => {
    cluster.reload();
    activity.reload();
  };
  const retry = () => {
    changed();
    pools.reload();
    history.reload();
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
      <Failure error={cluster.error ?? pools.error ?? history.error} retry={retry} />
      {!now && !cluster.error && <Loading what="the cluster" />}
      {now?.draining && <Progress draining={now.draining} />}
      {now && (
        <Card>
          <div className="summary">
            <Figures activity={activity.data} />
            <Promised capacity={now.capacity} />
          </div>
        </Card>
      )}
      {pools.environments && <Pools environments={pools.environments} alerts={alerts} />}
      {history.data && <Alerts standing={alerts} history={history.data.poolAlertHistory} />}
      <Scheduler />
      {now && <Meaning capacity={now.capacity} machine={now.kind === "local" ? "This machine" : `The ${now.kind} cluster`} />}
      <DrainDialog open={draining} onClose={() => setDraining(false)} onDone={changed} />
    </Page>
  );
}
