import { textOf } from "../../lib/ask";
import { RunMutation, WatchSubscription } from "../../lib/calls";
import { graphql, type VariablesOf } from "../../lib/graphql";
import { commandOf, type Program } from "./program";
import { quoted } from "./words";

const ResultDocument = graphql(`
  query Result($id: ID!) {
    execution(id: $id, waitFor: 60) {
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

/** The run of a program in one call. A line that is a shell's is given as such. */
export function runVariables(program: Program): VariablesOf<typeof RunMutation> {
  return {
    input: {
      environmentId: program.environment,
      files: filesOf(program),
      ...commandOf(program),
      ...(program.stdin === "" ? {} : { stdin: program.stdin }),
      waitFor: 30,
    },
  };
}

export function filesOf({ files }: Program) {
  return files.map(({ name, text }) => ({ path: name.trim(), text }));
}

/** The calls that a run is made of, as documents and variables. */
export function asGraphQL(program: Program): string {
  return [
    "# Run it",
    textOf(RunMutation),
    "# with the variables",
    JSON.stringify(runVariables(program), null, 2),
    "",
    "# Watch it, from its beginning or after the last cursor that came",
    textOf(WatchSubscription),
  ].join("\n");
}

/** The same with nothing but a shell, curl and jq. */
export function asCurl(program: Program, origin: string, token: boolean): string {
  const shown = token ? ` -H "Authorization: Bearer $ROCKPOOL_TOKEN"` : ""; // its name: what is copied is shown around
  const post = (body: string) => `curl -s ${quoted(`${origin}/graphql`)}${shown} -H 'Content-Type: application/json' -d ${body}`;
  const run = JSON.stringify({ query: flat(textOf(RunMutation)), variables: runVariables(program) });
  const result = JSON.stringify({ query: flat(textOf(ResultDocument)), variables: { id: "ID" } });
  return [
    "# Run it",
    `id=$(${post(quoted(run))} | jq -r .data.run.execution.id)`,
    "",
    "# and wait for its end",
    post(quoted(result).replace('"ID"', `"'"$id"'"`)),
  ].join("\n");
}

function flat(document: string): string {
  return document.replace(/\s+/g, " ").trim();
}
