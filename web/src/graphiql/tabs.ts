import { textOf } from "../lib/ask";
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

function tab(says: string, document: TadaDocumentNode<unknown, Record<string, never>>) {
  return { query: `# ${says}\n${textOf(document)}\n` };
}

/** What a newcomer wants to ask, the starter first. */
export function tabsOf({ query, variables }: Starter) {
  return [
    { query, variables },
    tab("What can be run, and how the pools are. Ctrl-Enter asks it.", EnvironmentsQuery),
    tab("All pools, live.", PoolsSubscription),
    tab("Why runners wait, and how much room there is.", SchedulingQuery),
  ];
}
