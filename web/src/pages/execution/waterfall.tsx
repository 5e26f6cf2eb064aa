import { between, duration } from "../../lib/format";
import { graphql, type ResultOf } from "../../lib/graphql";

export const WaterfallFragment = graphql(`
  fragment WaterfallMarks on Marks {
    queuedAt
    startedAt
    firstOutputAt
    finishedAt
  }
`);
export type Marks = ResultOf<typeof WaterfallFragment>;

export interface Step {
  name: string;
  /** Milliseconds since it was asked for. */
  from: number;
  took: number;
}

/** What happened one after the other, as far as it has. */
export function steps(marks: Marks): Step[] {
  const { queuedAt, startedAt, firstOutputAt, finishedAt } = marks;
  const out: Step[] = [];
  const add = (name: string, from: string | null, to: string | null) => {
    if (from && to) out.push({ name, from: between(queuedAt, from), took: Math.max(0, between(from, to)) });
  };
  add("Until it started", queuedAt, startedAt ?? finishedAt);
  add("To its first byte", startedAt, firstOutputAt);
  add(firstOutputAt ? "From there to its end" : "Until its end", firstOutputAt ?? startedAt, finishedAt);
  return out;
}

export function Waterfall({ marks, ended }: { marks: Marks; ended: boolean }) {
  const all = steps(marks);
  const whole = Math.max(...all.map((step) => step.from + step.took), 0.001);
  if (all.length === 0) return <p className="soft">It hasn't started yet.</p>;
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
      {!ended && <p className="soft small">It isn't over yet.</p>}
    </div>
  );
}
