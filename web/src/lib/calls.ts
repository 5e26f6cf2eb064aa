import { graphql } from "./graphql";

// The calls that run a program and follow it. The playground and GraphiQL share them.

export const RunMutation = graphql(`
  mutation Run($input: RunInput!) {
    run(input: $input) {
      execution {
        id
      }
    }
  }
`);

export const ReleaseMutation = graphql(`
  mutation ReleaseRunner($id: ID!) {
    releaseRunner(id: $id) {
      released
    }
  }
`);

export const WatchSubscription = graphql(`
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
`);
