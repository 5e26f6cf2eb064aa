// Runs a Python program on Rockpool, and follows it. It reconnects when the connection breaks:
//
//   printf 'Ada\nGrace\n' | npx tsx run.ts ../hello.py
import { openAsBlob } from "node:fs";
import { buffer } from "node:stream/consumers";
import { ask, follow, Refused, upload } from "./rockpool.js";

const { claimRunner } = await ask<{ claimRunner: { runner: { id: string } } }>(
  `mutation($input: ClaimRunnerInput!) { claimRunner(input: $input) { runner { id } } }`,
  { input: { environmentId: "python", waitFor: 20, inactivityTimeout: 60 } },
);
const runnerId = claimRunner.runner.id;
try {
  await upload(
    `mutation($runnerId: ID!, $file: Upload!) { uploadFile(runnerId: $runnerId, path: "main.py", file: $file) { file { size } } }`,
    { runnerId },
    await openAsBlob(process.argv[2]),
  );

  const { startExecution } = await ask<{ startExecution: { execution: { id: string } } }>(
    `mutation($input: StartExecutionInput!) { startExecution(input: $input) { execution { id } } }`,
    { input: { runnerId, command: ["python3", "main.py"], stdin: true } },
  );
  const executionId = startExecution.execution.id;

  const stdin = (await buffer(process.stdin)).toString("base64");
  await ask(`mutation($input: WriteStdinInput!) { writeStdin(input: $input) { offset } }`, {
    input: { executionId, base64: stdin, close: true },
  }).catch((error: unknown) => {
    if (!(error instanceof Refused) || error.error.extensions?.code !== "CONFLICT") throw error; // the program may end without reading its input
  });

  for await (const { stream, base64, execution } of follow(executionId)) {
    if (base64) (stream === "STDOUT" ? process.stdout : process.stderr).write(base64, "base64");
    if (execution) {
      console.error(`${execution.outcome}, exit code ${execution.exitCode}`);
      process.exitCode = execution.exitCode ?? 1;
    }
  }
} finally {
  await ask(`mutation($id: ID!) { releaseRunner(id: $id) { released } }`, { id: runnerId });
}
