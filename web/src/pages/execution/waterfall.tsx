import { between, duration } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";

export const WaterfallFragment = graphql(`
  fragment WaterfallTimestamps on Timestamps {
    queuedAt
    startedAt
    firstOutputAt
    finishedAt
  }
`);
export type Timestamps = ResultOf<typeof WaterfallFragment>;

export interface Step {
  name: string;
  /** Milliseconds since the execution was queued. */
  from: number;
  took: number;
}

/** steps returns the completed phases of an execution in their order. */
export function steps(timestamps: Timestamps): Step[] {
  const { queuedAt, startedAt, firstOutputAt, finishedAt } = timestamps;
  const out: Step[] = [];
  const add = (name: string, from: string | null, to: string | null) => {
    if (from && to) out.push({ name, from: between(queuedAt, from), took: Math.max(0, between(from, to)) });
  };
  add("Queued", queuedAt, startedAt ?? finishedAt);
  add("Start to first output", startedAt, firstOutputAt);
  add(firstOutputAt ? "First output to end" : "Start to end", firstOutputAt ?? startedAt, finishedAt);
  return out;
}

/** Waterfall draws the phases of an execution over time. */
export function Waterfall({ timestamps, ended }: { timestamps: Timestamps; ended: boolean }) {
  const all = steps(timestamps);
  const whole = Math.max(...all.map((step) => step.from + step.took), 0.001);
  if (all.length === 0) return <p className="soft">Not started yet.</p>;
  return (
    <div className="waterfall">
      {all.map((step) => (
        <div key={step.name}>
          <span>{step.name}</span>
          <span className="track">
            <span style={{ left: `${(step.from / whole) * 100}%`, width: `${(step.took / whole) * 100}%` }} />
          </span>
          <span className="num">{duration(step.took)}</span>
        </div>
      ))}
      {!ended && <p className="soft small">Not ended yet.</p>}
    </div>
  );
}
