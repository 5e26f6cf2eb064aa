import { Link } from "wouter";
import type { Activity } from "../lib/activity";
import { bytes, count } from "../lib/format";
import { graphql, type ResultOf } from "../lib/graphql";
import { Meter } from "./pool";

export const CapacityFragment = graphql(`
  fragment CapacityParts on Capacity {
    cpuMHz
    cpuMHzPromisable
    cpuMHzUsed
    memoryMiB
    memoryMiBPromisable
    memoryMiBUsed
  }
`);
export type Capacity = ResultOf<typeof CapacityFragment>;

export interface FigureProps {
  name: string;
  /** Undefined until it is known. */
  value: number | undefined;
  /** The page that lists the counted objects. */
  href?: string;
}

/** Figure shows a number with its name. */
export function Figure({ name, value, href }: FigureProps) {
  const text = value === undefined ? "…" : count(value);
  return (
    <div>
      <div className="small soft">{name}</div>
      <div className={`big num ${value ? "" : "none"}`}>
        {href ? (
          <Link href={href} aria-label={`${name}: ${text}`}>
            {text}
          </Link>
        ) : (
          text
        )}
      </div>
    </div>
  );
}

/** Figures shows running executions, failures a minute and waiting claims. */
export function Figures({ activity }: { activity: Activity | undefined }) {
  return (
    <>
      <Figure name="Executions running" value={activity?.executionsRunning} href="/executions?state=RUNNING" />
      <Figure name="Failures a minute" value={activity?.failuresPerMinute} href="/executions?outcome=failed" />
      <Figure name="Claims waiting" value={activity?.claimsWaiting} href="/access/queue" />
    </>
  );
}

const ghz = (mhz: number) => `${count(mhz / 1000)} GHz`;
const mib = (n: number) => bytes(n * 2 ** 20);

/**
 * Allocated shows the CPU and memory allocated to runners, of the allocatable amount. The rest is free for new
 * runners.
 */
export function Allocated({ capacity }: { capacity: Capacity | undefined }) {
  const of = (used: number, all: number, unit: (n: number) => string) => `${unit(used)} of ${unit(all)}, ${unit(Math.max(0, all - used))} free`;
  return (
    <>
      <Meter
        label="CPU allocated"
        used={capacity?.cpuMHzUsed ?? 0}
        of={capacity?.cpuMHzPromisable ?? 0}
        text={capacity ? of(capacity.cpuMHzUsed, capacity.cpuMHzPromisable, ghz) : "…"}
      />
      <Meter
        label="Memory allocated"
        used={capacity?.memoryMiBUsed ?? 0}
        of={capacity?.memoryMiBPromisable ?? 0}
        text={capacity ? of(capacity.memoryMiBUsed, capacity.memoryMiBPromisable, mib) : "…"}
      />
    </>
  );
}

/** CapacityNote explains the figures of Allocated. */
export function CapacityNote({ capacity, machine }: { capacity: Capacity; machine: string }) {
  const more = capacity.memoryMiBPromisable > capacity.memoryMiB || capacity.cpuMHzPromisable > capacity.cpuMHz;
  return (
    <p className="soft small">
      Each runner is allocated its environment's CPU and memory, whether it uses them or not. {machine} has {ghz(capacity.cpuMHz)} and {mib(capacity.memoryMiB)}
      {more ? "; the server's overcommit settings allow allocating more." : "."}
    </p>
  );
}
