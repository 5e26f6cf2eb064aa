/** What a newcomer wants to ask. */
export const tabs = [
  {
    query: `# What can be run, and how the pools are. Ctrl-Enter asks it.
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
`,
  },
  {
    query: `# Runs a program from beginning to end, in a runner of its own.
mutation Run($input: RunInput!) {
  run(input: $input) {
    execution {
      id
    }
  }
}
`,
    variables: JSON.stringify(
      { input: { environmentId: "python", waitFor: 30, command: ["python3", "hello.py"], files: [{ path: "hello.py", text: "print(6 * 7)\n" }] } },
      null,
      2,
    ),
  },
  {
    query: `# What a program prints, live, and how it ends. The id is what run answered.
subscription Watch($id: ID!, $after: Cursor) {
  executionEvents(executionId: $id, after: $after) {
    cursor
    ... on ExecutionOutput {
      stream
      text
    }
    ... on ExecutionFinished {
      execution {
        outcome
        exitCode
        message
      }
    }
  }
}
`,
    variables: JSON.stringify({ id: "" }, null, 2),
  },
  {
    query: `# All pools, live.
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
`,
  },
  {
    query: `# Why runners wait, and how much room there is.
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
`,
  },
];
