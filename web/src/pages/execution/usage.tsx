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

/**
 * Usage shows an execution's resource usage: each second while it runs and the page is visible, then the final
 * usage.
 */
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

/** UsageCard shows the current usage, and after the end the final one. A missing value is "–". */
function UsageCard({ now, final, limits, share, running }: CardProps) {
  const used = final ?? now;
  return (
    <Card title="Resource usage">
      <Facts>
        {[
          [running ? "Elapsed" : "Duration", used ? duration(running ? Math.floor(used.wallMs / 1000) * 1000 : used.wallMs) : "–"],
          ["Processor time", used ? cpu(used, share, running) : "–"],
          ["Memory", withPeak(now?.memory, used?.peakMemory, limits?.memoryLimit, bytes)],
          ["Processes", withPeak(now?.processes, used?.peakProcesses, limits?.processLimit, count)],
          ["Disk I/O", final?.bytesRead != null && final.bytesWritten != null ? `${bytes(final.bytesRead)} read, ${bytes(final.bytesWritten)} written` : "–"],
          ["Output size", used ? bytes(used.outputBytes) : "–"],
        ]}
      </Facts>
    </Card>
  );
}

/** cpu describes CPU time. While the program runs, it begins with the current share. */
function cpu(used: { userMs: number; systemMs: number }, share: number | undefined, running: boolean): string {
  const all = `${duration(used.userMs + used.systemMs)} (${duration(used.systemMs)} in the kernel)`;
  return running && share !== undefined ? `${percent(share)} now, ${all}` : all;
}

/** withPeak describes a usage, "100 MiB of 256 MiB, peak 120 MiB"; after the end only its peak. */
function withPeak(now: number | null | undefined, peak: number | null | undefined, limit: number | undefined, format: (n: number) => string): string {
  const most = peak == null ? undefined : `peak ${format(peak)}`;
  if (now == null) return most ?? "–";
  return [limit === undefined ? format(now) : `${format(now)} of ${format(limit)}`, most].filter(Boolean).join(", ");
}
