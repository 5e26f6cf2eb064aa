import { textOf } from "../lib/ask";
import { RunMutation, WatchSubscription } from "../lib/calls";
import { graphql, type TadaDocumentNode } from "../lib/graphql";

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

function tab<Variables>(says: string, document: TadaDocumentNode<unknown, Variables>, variables: Variables) {
  const none = Object.keys(variables as object).length === 0;
  return { query: `# ${says}\n${textOf(document)}\n`, ...(none ? {} : { variables: JSON.stringify(variables, null, 2) }) };
}

/** What a newcomer wants to ask. */
export const tabs = [
  tab("What can be run, and how the pools are. Ctrl-Enter asks it.", EnvironmentsQuery, {}),
  tab("Runs a program from beginning to end, in a runner of its own.", RunMutation, {
    input: { environmentId: "python", waitFor: 30, command: ["python3", "hello.py"], files: [{ path: "hello.py", text: "print(6 * 7)\n" }] },
  }),
  tab("What a program prints, live, and how it ends. The id is what run answered.", WatchSubscription, { id: "" }),
  tab("All pools, live.", PoolsSubscription, {}),
  tab("Why runners wait, and how much room there is.", SchedulingQuery, {}),
];
