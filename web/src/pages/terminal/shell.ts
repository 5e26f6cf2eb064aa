import { ask } from "../../lib/ask";
import { graphql } from "../../lib/graphql";

const ClaimMutation = graphql(`
  mutation ClaimForShell($input: ClaimRunnerInput!) {
    claimRunner(input: $input) {
      runner {
        id
      }
    }
  }
`);

const StartMutation = graphql(`
  mutation StartShell($input: StartExecutionInput!) {
    startExecution(input: $input) {
      execution {
        id
      }
    }
  }
`);

// The best shell that there is, as rockpool runner shell starts it. Bash
// controls its jobs through standard error.
const anyShell = "if command -v bash >/dev/null; then exec bash -i 2>&1; else exec sh -i 2>&1; fi";

/** Claims a runner for a shell. */
export async function claim(environmentId: string): Promise<string> {
  const labels = [{ name: "by", value: "dashboard" }];
  const { claimRunner } = await ask(ClaimMutation, { input: { environmentId, waitFor: 15, inactivityTimeout: 600, labels } });
  if (!claimRunner.runner) throw new Error("the answer has no runner"); // only one that asked for a ticket has none
  return claimRunner.runner.id;
}

/** Starts a shell in a claimed runner, and returns its execution. */
export async function startShell(runnerId: string): Promise<string> {
  const { startExecution } = await ask(StartMutation, {
    input: { runnerId, shell: anyShell, timeLimit: 0, terminal: { columns: 80, rows: 24 } },
  });
  return startExecution.execution.id;
}
