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
    peakMemory
    peakProcesses
    bytesRead
    bytesWritten
    outputBytes
  }
`);
export type UsageParts = ResultOf<typeof UsageFragment>;

const NowQuery = graphql(`
  query UsageNow($id: ID!) {
    execution(id: $id) {
      usageNow {
        wallMs
        userMs
        systemMs
        memory
        peakMemory
        processes
        peakProcesses
        outputBytes
      }
      runner {
        usage {
          memoryLimit
          processLimit
        }
      }
    }
  }
`);
type NowParts = NonNullable<NonNullable<ResultOf<typeof NowQuery>["execution"]>["usageNow"]>;
type Limits = { memoryLimit: number; processLimit: number };

/** What an execution uses, once a second while it runs and this is seen; then what it used. */
export function Usage({ id, running, final }: { id: string; running: boolean; final: UsageParts | null }) {
  const { data } = useQuery(NowQuery, { id }, { every: 1_000, skip: !running, whileSeen: true });
  const [last, setLast] = useState<{ now: NowParts; limits: Limits | undefined; cpu: Measured }>();
  const now = data?.execution?.usageNow;
  if (now && now !== last?.now) {
    setLast({ now, limits: data.execution?.runner?.usage ?? last?.limits, cpu: measured(last?.cpu, { cpu: now.userMs + now.systemMs, at: now.wallMs }) });
  }
  return <UsageCard now={final ? undefined : last?.now} final={final} limits={last?.limits} share={running ? last?.cpu.share : undefined} running={running} />;
}

interface CardProps {
  now: NowParts | undefined;
  final: UsageParts | null;
  limits: Limits | undefined;
  share: number | undefined;
  running: boolean;
}

function UsageCard({ now, final, limits, share, running }: CardProps) {
  const used = final ?? now;
  return (
    <Card title={running ? "What it uses" : "What it used"}>
      <Facts>
        {[
          [running ? "Elapsed" : "Took", used ? duration(running ? Math.floor(used.wallMs / 1000) * 1000 : used.wallMs) : "–"],
          ["Processor time", used ? cpu(used, share, running) : "–"],
          ["Memory", beside(now?.memory, used?.peakMemory, limits?.memoryLimit, bytes)],
          ["Processes", beside(now?.processes, used?.peakProcesses, limits?.processLimit, count)],
          ["Disks", final?.bytesRead != null && final.bytesWritten != null ? `${bytes(final.bytesRead)} read, ${bytes(final.bytesWritten)} written` : "–"],
          ["Printed", used ? bytes(used.outputBytes) : "–"],
        ]}
      </Facts>
    </Card>
  );
}

function cpu(used: { userMs: number; systemMs: number }, share: number | undefined, running: boolean): string {
  const all = `${duration(used.userMs + used.systemMs)} (${duration(used.systemMs)} in the kernel)`;
  return running && share !== undefined ? `${percent(share)} now, ${all}` : all;
}

/** "100 MiB of 256 MiB, at most 120 MiB"; once it has ended the last part alone. */
function beside(now: number | null | undefined, peak: number | null | undefined, limit: number | undefined, say: (n: number) => string): string {
  const most = peak == null ? undefined : `at most ${say(peak)}`;
  if (now == null) return most ?? "–";
  return [limit === undefined ? say(now) : `${say(now)} of ${say(limit)}`, most].filter(Boolean).join(", ");
}
