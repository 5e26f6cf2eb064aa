import { textOf } from "../lib/ask";
import { RunMutation, WatchSubscription } from "../lib/calls";
import { graphql, type ResultOf, type VariablesOf } from "../lib/graphql";
import { store } from "../lib/store";

/** What the starter's variables are filled in from. */
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

export interface Starter {
  /** The latest execution; "" where there is none. */
  id: string;
  query: string;
  variables: string;
}

const [output, watch, run] = [OutputQuery, WatchSubscription, RunMutation].map(textOf) as [string, string, string];
const queries = {
  some: [
    "# Click the triangle, and choose:\n# Output: what the latest program printed.\n# Watch: the same, live.\n# Run: runs another one, and fills in its id.",
    output,
    watch,
    run,
  ].join("\n\n"),
  none: [
    "# Nothing has run yet. Click the triangle,\n# and choose Run: it fills in the id.\n# Then choose Watch: what it prints, live.\n# Or Output: all of it.",
    run,
    watch,
    output,
  ].join("\n\n"),
};

/** The starter of a server on which this is the latest; undefined where that is unknown. */
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

/** Variables with another execution's id in place of an empty one, or of the one that the page wrote there. */
export function withId(variables: string, id: string, filled: string): string {
  try {
    const all = JSON.parse(variables) as { id?: unknown };
    return all.id === "" || all.id === filled ? JSON.stringify({ ...all, id }, null, 2) : variables;
  } catch {
    return variables; // a person is writing them
  }
}

/** The id of the execution that an answer says was started; undefined for other answers. */
export function startedBy(answer: unknown): string | undefined {
  const id = (answer as { data?: { run?: { execution?: { id?: unknown } } } } | undefined)?.data?.run?.execution?.id;
  return typeof id === "string" ? id : undefined;
}

const prefix = "graphiql:";
const filledIn = "rockpool.graphiql.id"; // the id that the page wrote there itself

interface Tab {
  query: string | null;
  variables: string | null;
}

/**
 * Renews the starter where GraphiQL stored it in an earlier visit, and nobody changed its text: with the latest id,
 * unless a person wrote another one there.
 */
export function renew(storage: Pick<Storage, "getItem" | "setItem">, starter: Starter) {
  const filled = noted(storage);
  try {
    note(storage, starter.id);
    const state = JSON.parse(storage.getItem(`${prefix}tabState`) ?? "null") as { tabs: Tab[]; activeTabIndex: number } | null;
    if (!state) return storage.setItem(`${prefix}variables`, starter.variables); // of a first tab it takes only the query from the page
    state.tabs = state.tabs.map((tab) => {
      if (tab.query !== queries.none && tab.query !== queries.some) return tab;
      const { id } = JSON.parse(tab.variables ?? "") as { id?: unknown };
      return id === filled ? { ...tab, query: starter.query, variables: starter.variables } : tab;
    });
    const active = state.tabs[state.activeTabIndex];
    storage.setItem(`${prefix}tabState`, JSON.stringify(state));
    // It has the active tab's once more.
    if (active) for (const part of ["query", "variables"] as const) storage.setItem(prefix + part, active[part] ?? "");
  } catch {
    // What can't be read, or stored, is as a person left it.
  }
}

/** The id that the page has written into the starter; "" for none. */
export function noted(storage: Pick<Storage, "getItem">): string {
  return storage.getItem(filledIn) ?? "";
}

/** Notes the id that the page has written into the starter. */
export function note(storage: Pick<Storage, "setItem">, id: string) {
  store(storage, filledIn, id);
}
