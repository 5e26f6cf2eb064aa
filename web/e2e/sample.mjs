// A server with sample data, and the pages that show it.

/** Creates the sample data, and returns each page with the selector that shows that it is ready. */
export async function sample(server) {
  await server.ask(`mutation { putEnvironment(input: {id: "big", poolSize: 2, resources: {memoryMiB: 900000}}) { created } }`);
  const python = `import sys, time
print("\\033[1mTraining\\033[0m on 3 batches")
for i in range(1, 4):
    print(f"  batch {i}: \\033[32mok\\033[0m  loss {1 / (i + 1):.3f}", flush=True)
    time.sleep(0.2)
print("warning: learning rate is high", file=sys.stderr)
print("\\033[36mdone\\033[0m")`;
  const { run } = await server.ask(`mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, {
    in: { environmentId: "python", waitFor: 60, command: ["python3", "train.py"], files: [{ path: "train.py", text: python }] },
  });
  const execution = run.execution.id;
  await server.end(execution);
  for (const command of ["echo hello", "exit 3", "sleep 100", "head -c 3000 /dev/zero"]) {
    const { run: started } = await server.ask(`mutation($in: RunInput!) { run(input: $in) { execution { id } } }`, { in: { environmentId: "shell", waitFor: 60, shell: command, timeLimit: 1 } });
    await server.end(started.execution.id);
  }
  const { claimRunner } = await server.ask(
    `mutation { claimRunner(input: {environmentId: "shell", waitFor: 60, inactivityTimeout: 3600, labels: [{name: "course", value: "algorithms"}]}) { runner { id } } }`,
  );
  const runnerId = claimRunner.runner.id;
  await server.ask(`mutation($in: UpdateFilesInput!) { updateFiles(input: $in) { written } }`, {
    in: { runnerId, write: [{ path: "main.sh", text: "echo hi\n" }, { path: "notes", directory: true }, { path: "data.csv", text: "a,b\n".repeat(500) }] },
  });
  const { startExecution } = await server.ask(`mutation($in: StartExecutionInput!) { startExecution(input: $in) { execution { id } } }`, {
    in: { runnerId, command: ["bash", "-c", "exec bash -i 2>&1"], terminal: { columns: 80, rows: 24 }, timeLimit: 0 },
  });
  const shell = startExecution.execution.id;
  await server.ask(`mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`, { in: { executionId: shell, text: "ls -l\n" } });
  const { run: judged } = await server.ask(`mutation($in: RunInput!) { run(input: $in) { batch { id } } }`, {
    in: { environmentId: "shell", waitFor: 60, shell: "sleep 0.1; exit $1", build: { shell: "echo building" }, cases: ["0", "0", "1", "0"].map((status) => ({ args: [status] })) },
  });
  await server.ask(`mutation { putTenant(input: {id: "course-1", weight: 2, quotas: {runners: 10, cpuSecondsPerDay: 36000}}) { created } }`);
  // This claim waits until its timeout, because its runner doesn't fit.
  server.begin(`mutation { claimRunner(input: {environmentId: "big", waitFor: 3600}) { runner { id } } }`);
  const { createGrant } = await server.ask(`mutation($in: CreateGrantInput!) { createGrant(input: $in) { token } }`, { in: { executionId: execution, rights: ["WATCH"] } });
  return [
    { name: "overview", address: "/", ready: ".pool-row >> text=/Not filling|Too few/" },
    { name: "environment", address: "/environments/python", ready: "h2:text-is('Configuration')" },
    { name: "new-environment", address: "/new-environment", ready: "text=Create the environment" },
    { name: "runners", address: "/runners", ready: ".table-row >> text=course=algorithms" },
    { name: "executions", address: "/executions", ready: ".table-row >> text=Time limit" },
    { name: "execution", address: `/executions/${execution}`, ready: ".output-line >> text=done" },
    { name: "batches", address: "/batches", ready: ".table-row >> text=1 failed" },
    { name: "batch", address: `/batches/${judged.batch.id}`, ready: ".tag >> text=1 failed" },
    { name: "replay", address: `/executions/${execution}/replay`, ready: "text=Play again" },
    { name: "playground", address: "/playground?environment=python", ready: ".cm-content" },
    { name: "terminals", address: "/terminal", ready: "text=Open a shell" },
    { name: "terminal", address: `/terminal/${shell}`, ready: ".files >> text=main.sh" },
    { name: "operations", address: "/operations", ready: "text=Waiting for resources" },
    { name: "tokens", address: "/access/tokens", ready: "text=No tokens yet" },
    { name: "tenants", address: "/access/tenants", ready: "text=0 of 10" },
    { name: "queue", address: "/access/queue", ready: ".table-row >> text=big" },
    { name: "audit", address: "/access/audit", ready: ".table-row >> text=putTenant" },
    { name: "you", address: "/access/you", ready: "h2:text-is('Caller')" },
    { name: "share", address: `/share/${execution}#grant=${createGrant.token}`, ready: ".output-line >> text=done" },
    { name: "nothing", address: "/environments/nonesuch", ready: "text=Environment not found" },
  ];
}
