import { request } from "../../lib/request";
import { graphql } from "../../lib/graphql";
import { hold, lease } from "../../lib/lease";

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

// Starts bash, or sh without it, as `rockpool runner shell` does. Bash does job control on standard error.
const anyShell = "if command -v bash >/dev/null; then exec bash -i 2>&1; else exec sh -i 2>&1; fi";

/** claim claims a runner for a shell, and returns its id. */
export async function claim(environmentId: string): Promise<string> {
  const labels = [{ name: "by", value: "dashboard" }];
  const { claimRunner } = await request(ClaimMutation, { input: { environmentId, waitFor: 15, inactivityTimeout: 600, labels } });
  if (!claimRunner.runner) throw new Error("the server's response has no runner"); // only claims with a ticket have none
  return claimRunner.runner.id;
}

/** startShell starts a shell in a claimed runner, and returns the execution's id. The shell ends some time after this tab. */
export async function startShell(runnerId: string): Promise<string> {
  const { startExecution } = await request(StartMutation, {
    input: { runnerId, command: ["sh", "-c", anyShell], commandLine: "shell", timeLimit: 0, lease, terminal: { columns: 80, rows: 24 } },
  });
  hold(startExecution.execution.id);
  return startExecution.execution.id;
}
