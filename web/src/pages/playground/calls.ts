import { textOf } from "../../lib/request";
import { RunMutation, WatchSubscription } from "../../lib/calls";
import { graphql, type VariablesOf } from "../../lib/graphql";
import { commandOf, shownOf, type Program } from "./program";

const ResultDocument = graphql(`
  query Result($id: ID!) {
    execution(id: $id, waitFor: 45) {
      state
      outcome
      exitCode
      output {
        chunks {
          stream
          text
        }
      }
    }
  }
`);

/** runVariables returns the variables of a run in one call. A shell command is passed as `shell`. */
export function runVariables(program: Program): VariablesOf<typeof RunMutation> {
  const command = commandOf(program);
  const shell = command.length === 3 && command[0] === "sh" && command[1] === "-c" ? command[2] : undefined;
  return {
    input: {
      environmentId: program.environment,
      files: filesOf(program),
      ...(shell === undefined ? { command, commandLine: shownOf(program) } : { shell }),
      ...(program.stdin === "" ? {} : { stdin: program.stdin }),
      waitFor: 30,
    },
  };
}

/** filesOf returns the program's files for the API. */
export function filesOf({ files }: Program) {
  return files.map(({ name, text }) => ({ path: name.trim(), text }));
}

/** asGraphQL returns the calls of a run as documents and variables. */
export function asGraphQL(program: Program): string {
  return [
    "# Run it",
    textOf(RunMutation),
    "# with the variables",
    JSON.stringify(runVariables(program), null, 2),
    "",
    "# Watch it, from the beginning or after the last received cursor",
    textOf(WatchSubscription),
  ].join("\n");
}

/** asCurl returns the calls of a run as a shell script that needs only curl and jq. */
export function asCurl(program: Program, origin: string, token: boolean): string {
  const shown = token ? ` -H "Authorization: Bearer $ROCKPOOL_TOKEN"` : ""; // the variable's name, because copied scripts get shared
  const post = (body: string) => `curl -s ${quoted(`${origin}/graphql`)}${shown} -H 'Content-Type: application/json' -d ${body}`;
  const run = JSON.stringify({ query: flat(textOf(RunMutation)), variables: runVariables(program) });
  const result = JSON.stringify({ query: flat(textOf(ResultDocument)), variables: { id: "ID" } });
  return [
    "# Run it",
    `id=$(${post(quoted(run))} | jq -r .data.run.execution.id)`,
    "",
    "# and wait until it ends. Proxies end a call after 60 s, so none waits longer than 45 s",
    `while result=$(${post(quoted(result).replace('"ID"', `"'"$id"'"`))})`,
    `  printf '%s\\n' "$result" | jq -e '.data.execution | .state != null and .state != "FINISHED"' >/dev/null; do :; done`,
    `printf '%s\\n' "$result"`,
  ].join("\n");
}

/** flat puts a document on one line, for a shell command. */
function flat(document: string): string {
  return document.replace(/\s+/g, " ").trim();
}

/** quoted quotes any text as one word for a POSIX shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
