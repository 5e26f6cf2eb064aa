import { useCallback, useState } from "react";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { measured, type Measured } from "../../lib/usage";
import type { Filter, RunnerRow } from "./userunners";

const UsageQuery = graphql(`
  query RunnersUsage($environmentId: ID, $states: [RunnerState!], $heldBy: String, $labels: [LabelFilterInput!], $to: Time, $first: Int, $after: String) {
    runners(environmentId: $environmentId, states: $states, heldBy: $heldBy, labels: $labels, to: $to, first: $first, after: $after, newestFirst: true) {
      nodes {
        id
        usage {
          cpuMs
          memory
          memoryLimit
          at
        }
      }
    }
  }
`);
type Answer = ResultOf<typeof UsageQuery>;

export interface RunnerUsage {
  memory: number | null;
  memoryLimit: number;
  cpu: Measured;
}

/** block is the number of rows in one request, so that scrolling rarely causes another. */
const block = 25;

/** useUsage returns the usage of the visible rows' runners, each second while the page is visible. */
export function useUsage(filter: Filter, rows: readonly RunnerRow[]) {
  const [seen, setSeen] = useState({ first: 0, last: 0 });
  const onSeen = useCallback((first: number, last: number) => setSeen({ first, last }), []);
  const from = Math.floor(seen.first / block) * block;
  const first = (Math.floor(seen.last / block) + 1) * block - from;
  const after = rows[from - 1]?.cursor ?? null;
  const { environmentId, states, heldBy, labels, to } = filter; // the page begins after the row before the block
  const { data } = useQuery(UsageQuery, { environmentId, states, heldBy, labels, to, first, after }, { every: 1_000, skip: rows.length === 0, whileSeen: true });
  const [known, setKnown] = useState<{ data?: Answer; usage: ReadonlyMap<string, RunnerUsage> }>({ usage: new Map() });
  if (data && data !== known.data) setKnown({ data, usage: next(known.usage, data) });
  return { usage: known.usage, onSeen };
}

/** next returns the usage after a response, only of runners in it. */
export function next(before: ReadonlyMap<string, RunnerUsage>, { runners }: Answer): Map<string, RunnerUsage> {
  const after = new Map<string, RunnerUsage>();
  for (const { id, usage } of runners.nodes) {
    if (!usage) continue;
    const cpu = measured(before.get(id)?.cpu, { cpu: usage.cpuMs, at: Date.parse(usage.at) });
    after.set(id, { memory: usage.memory, memoryLimit: usage.memoryLimit, cpu });
  }
  return after;
}
