import { createContext, useContext, type ReactNode } from "react";
import { useCaller } from "./caller";
import { graphql, type ResultOf } from "./graphql";
import { useQuery, type Query } from "./hooks";

const ActivityQuery = graphql(`
  query ActivityNow {
    activity {
      executionsRunning
      executionsPending
      failuresPerMinute
      claimsWaiting
      draining
    }
  }
`);
export type Activity = ResultOf<typeof ActivityQuery>["activity"];

const Context = createContext<Pick<Query<Activity>, "data" | "error" | "reload">>({ data: undefined, error: undefined, reload: () => {} });

/** useActivity returns the current activity. All components of a page share one query. */
export function useActivity() {
  return useContext(Context);
}

/** ActivityProvider polls the activity every 5 s, once the caller is known and has a role. */
export function ActivityProvider({ children }: { children: ReactNode }) {
  const { caller } = useCaller();
  const { data, error, reload } = useQuery(ActivityQuery, {}, { every: 5_000, skip: !caller?.role });
  return <Context value={{ data: data?.activity, error, reload }}>{children}</Context>;
}
