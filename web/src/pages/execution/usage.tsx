import { useState } from "react";
import { bytes, count, duration } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";
import { useQuery } from "../../lib/hooks";
import { measured, percent, type Measured } from "../../lib/usage";
import { Card, Facts } from "../../ui/parts";

export const UsageFragment = graphql(`
  fragment UsageParts on Usage {
    wallMs
    userMs
    systemMs
    memory
    peakMemory
    processes
    peakProcesses
    bytesRead
    bytesWritten
    outputBytes
  }
`);
export type UsageParts = ResultOf<typeof UsageFragment>;

const LiveQuery = graphql(
  `
    query LiveUsage($id: ID!) {
      execution(id: $id) {
        state
        usage {
          ...UsageParts
        }
        runner {
          usage {
            memoryLimit
            processLimit
          }
        }
      }
    }
  `,
  [UsageFragment],
);
export type Limits = { memoryLimit: number; processLimit: number };

/** What an execution uses, once a second while it runs and this is seen; then what it used. */
export function Usage({ id, running, final }: { id: string; running: boolean; final: UsageParts | null }) {
  const { data } = useQuery(LiveQuery, { id }, { every: 1_000, skip: !running, whileSeen: true });
  const live = data?.execution;
  const [last, setLast] = useState<{ usage: UsageParts; limits: Limits | undefined; cpu: Measured }>();
  const usage = live?.usage;
  if (usage && usage !== last?.usage) {
    setLast({ usage, limits: live.runner?.usage ?? last?.limits, cpu: measured(last?.cpu, { cpu: usage.userMs + usage.systemMs, at: usage.wallMs }) });
  }
  return <UsageCard usage={final ?? last?.usage} limits={last?.limits} share={running ? last?.cpu.share : undefined} running={running} />;
}

export function UsageCard({ usage, limits, share, running }: { usage: UsageParts | undefined; limits: Limits | undefined; share: number | undefined; running: boolean }) {
  return (
    <Card title={running ? "What it uses" : "What it used"}>
      <Facts>
        {[
          [running ? "Elapsed" : "Took", usage ? duration(running ? Math.floor(usage.wallMs / 1000) * 1000 : usage.wallMs) : "–"],
          ["Processor time", usage ? cpu(usage, share, running) : "–"],
          ["Memory", usage ? beside(usage.memory, usage.peakMemory, limits?.memoryLimit, bytes) : "–"],
          ["Processes", usage ? beside(usage.processes, usage.peakProcesses, limits?.processLimit, count) : "–"],
          ["Disks", usage?.bytesRead != null && usage.bytesWritten != null ? `${bytes(usage.bytesRead)} read, ${bytes(usage.bytesWritten)} written` : "–"],
          ["Printed", usage ? bytes(usage.outputBytes) : "–"],
        ]}
      </Facts>
    </Card>
  );
}

function cpu(usage: UsageParts, share: number | undefined, running: boolean): string {
  const all = `${duration(usage.userMs + usage.systemMs)} (${duration(usage.systemMs)} in the kernel)`;
  return running && share !== undefined ? `${percent(share)} now, ${all}` : all;
}

/** "100 MiB of 256 MiB, at most 120 MiB"; once it has ended the last part alone. */
function beside(now: number | null, peak: number | null, limit: number | undefined, say: (n: number) => string): string {
  const most = peak === null ? undefined : `at most ${say(peak)}`;
  if (now === null) return most ?? "–";
  return [limit === undefined ? say(now) : `${say(now)} of ${say(limit)}`, most].filter(Boolean).join(", ");
}
