import { textOf } from "../lib/request";
import { RunMutation, WatchSubscription } from "../lib/calls";
import { graphql, type ResultOf, type VariablesOf } from "../lib/graphql";
import { store } from "../lib/store";

/** LatestQuery queries the data for the starter's variables. */
export const LatestQuery = graphql(`
  query Latest {
    executions(first: 1, newestFirst: true) {
      nodes {
        id
        environmentId
      }
    }
    environments {
      id
    }
  }
`);

const OutputQuery = graphql(`
  query Output($id: ID!) {
    execution(id: $id) {
      state
      outcome
      exitCode
      message
      output {
        chunks {
          stream
          text
        }
      }
    }
  }
`);

/** Starter is the first tab's text: queries and variables for the latest execution. */
export interface Starter {
  /** The latest execution; "" if there is none. */
  id: string;
  query: string;
  variables: string;
}

const [output, watch, run] = [OutputQuery, WatchSubscription, RunMutation].map(textOf) as [string, string, string];
/** queries has the first tab's text with and without an earlier execution. */
const queries = {
  some: [
    "# Click the triangle and choose an operation:\n# Output: the output of the latest program.\n# Watch: the same, live.\n# Run: runs another program and fills in its id.",
    output,
    watch,
    run,
  ].join("\n\n"),
  none: [
    "# No program has run yet. Click the triangle\n# and choose Run: it fills in the id.\n# Then choose Watch: live output.\n# Or Output: all output.",
    run,
    watch,
    output,
  ].join("\n\n"),
};

/** starterOf returns the starter for the latest execution; undefined stands for an unknown one. */
export function starterOf(latest: ResultOf<typeof LatestQuery> | undefined): Starter {
  const execution = latest?.executions.nodes[0];
  const environments = latest?.environments.map((one) => one.id) ?? [];
  const environmentId = environments.find((id) => id === execution?.environmentId) ?? environments[0] ?? "python";
  const variables: VariablesOf<typeof RunMutation> & { id: string } = {
    id: execution?.id ?? "",
    input: { environmentId, waitFor: 30, shell: "for n in 1 2 3; do echo line $n; sleep 1; done" },
  };
  return { id: variables.id, query: execution ? queries.some : queries.none, variables: JSON.stringify(variables, null, 2) };
}

/** withId puts an execution's id into the variables if their id is empty or was filled in by the page. */
export function withId(variables: string, id: string, filled: string): string {
  try {
    const all = JSON.parse(variables) as { id?: unknown };
    return all.id === "" || all.id === filled ? JSON.stringify({ ...all, id }, null, 2) : variables;
  } catch {
    return variables; // the user is editing them
  }
}

/** startedBy returns the id of the execution that a result reports as started; undefined for other results. */
export function startedBy(answer: unknown): string | undefined {
  const id = (answer as { data?: { run?: { execution?: { id?: unknown } } } } | undefined)?.data?.run?.execution?.id;
  return typeof id === "string" ? id : undefined;
}

const prefix = "graphiql:";
const filledIn = "rockpool.graphiql.id"; // the id that the page filled in

/** Tab is the part of a stored tab that this page reads and writes. */
interface Tab {
  query: string | null;
  variables: string | null;
}

/**
 * renew updates the starter that GraphiQL stored on an earlier visit, if its text is unchanged. It fills in the latest
 * id, unless the user wrote another one.
 */
export function renew(storage: Pick<Storage, "getItem" | "setItem">, starter: Starter) {
  const filled = noted(storage);
  try {
    note(storage, starter.id);
    const state = JSON.parse(storage.getItem(`${prefix}tabState`) ?? "null") as { tabs: Tab[]; activeTabIndex: number } | null;
    if (!state) return storage.setItem(`${prefix}variables`, starter.variables); // for a first tab GraphiQL takes only the query from the page
    state.tabs = state.tabs.map((tab) => {
      if (tab.query !== queries.none && tab.query !== queries.some) return tab;
      const { id } = JSON.parse(tab.variables ?? "") as { id?: unknown };
      return id === filled ? { ...tab, query: starter.query, variables: starter.variables } : tab;
    });
    const active = state.tabs[state.activeTabIndex];
    storage.setItem(`${prefix}tabState`, JSON.stringify(state));
    // GraphiQL stores the active tab a second time.
    if (active) for (const part of ["query", "variables"] as const) storage.setItem(prefix + part, active[part] ?? "");
  } catch {
    // Unreadable or full storage stays unchanged.
  }
}

/** noted returns the id that the page last filled in; "" for none. */
export function noted(storage: Pick<Storage, "getItem">): string {
  return storage.getItem(filledIn) ?? "";
}

/** note stores the id that the page filled in. */
export function note(storage: Pick<Storage, "setItem">, id: string) {
  store(storage, filledIn, id);
}
