import { textOf } from "../lib/request";
import { graphql, type TadaDocumentNode } from "../lib/graphql";
import type { Starter } from "./starter";

const EnvironmentsQuery = graphql(`
  query Environments {
    version
    environments {
      id
      image
      pool {
        size
        idle
        claimed
        reason
      }
    }
  }
`);

const PoolsSubscription = graphql(`
  subscription Pools {
    poolStatus {
      environmentId
      size
      idle
      starting
      claimed
      reason
    }
  }
`);

const SchedulingQuery = graphql(`
  query Scheduling {
    cluster {
      kind
      capacity {
        cpuMHz
        cpuMHzUsed
        memoryMiB
        memoryMiBUsed
      }
      evaluations(status: [BLOCKED, FAILED]) {
        nodes {
          runnerId
          trigger
          reason
          waitMs
          shortages {
            dimension
            wanted
            free
          }
        }
      }
    }
  }
`);

/** tab returns a tab with a comment above its document. */
function tab(comment: string, document: TadaDocumentNode<unknown, Record<string, never>>) {
  return { query: `# ${comment}\n${textOf(document)}\n` };
}

/** tabsOf returns GraphiQL's first tabs: the starter and three examples. */
export function tabsOf({ query, variables }: Starter) {
  return [
    { query, variables },
    tab("Environments and their pools. Ctrl-Enter runs the query.", EnvironmentsQuery),
    tab("All pools, live.", PoolsSubscription),
    tab("Runners that wait for resources, and the cluster's capacity.", SchedulingQuery),
  ];
}
