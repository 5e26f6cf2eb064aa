/** Series is a list of numbers over time, oldest first. */
export type Series = readonly number[];

const width = 240;
const height = 32;

/** slotsFor returns the width of a chart in steps of 10 s: the shortest of 5, 15, 30 and 60 minutes that fits. */
export function slotsFor(length: number): number {
  return [30, 90, 180].find((slots) => length <= slots) ?? 360;
}

/** Spark draws a small line without axes, which shows a trend and no values. */
export function Spark({ values, label, slots }: { values: Series; label: string; slots: number }) {
  const top = Math.max(1, ...values);
  // The right edge is now.
  const x = (i: number) => ((slots - values.length + i) / Math.max(1, slots - 1)) * width;
  const y = (value: number) => height - 2 - (value / top) * (height - 4);
  const line = values.map((value, i) => `${i === 0 ? "M" : "L"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return (
    <svg className="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {values.length > 1 && (
        <>
          <path className="area" d={`${line}L${width} ${height}L${x(0).toFixed(1)} ${height}Z`} />
          <path className="line" d={line} />
        </>
      )}
    </svg>
  );
}

/** Layer is one of the counts that a Stack draws on top of each other. */
export interface Layer {
  name: string;
  values: Series;
}

const chart = { width: 720, height: 160 };

/** Stack draws stacked counts over time, in steps of 10 s, with a scale. */
export function Stack({ layers, label }: { layers: readonly Layer[]; label: string }) {
  const length = layers[0]?.values.length ?? 0;
  const slots = slotsFor(length);
  const sums = Array.from({ length }, (_, i) => layers.reduce((sum, layer) => sum + (layer.values[i] ?? 0), 0));
  const top = nice(Math.max(1, ...sums));
  const x = (i: number) => ((slots - length + i) / Math.max(1, slots - 1)) * chart.width;
  const y = (value: number) => chart.height - (value / top) * chart.height;
  const below = new Array<number>(length).fill(0);
  const areas = layers.map((layer) => {
    const lower = below.slice();
    for (let i = 0; i < length; i++) below[i]! += layer.values[i] ?? 0;
    const up = below.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`);
    const down = lower.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`).reverse();
    return { name: layer.name, path: `M${[...up, ...down].join("L")}Z` };
  });
  return (
    <div className="chart">
      <div className="chart-scale small soft num" aria-hidden="true">
        <span>{top}</span>
        <span>{top % 2 === 0 ? top / 2 : ""}</span>
        <span>0</span>
      </div>
      <svg viewBox={`0 0 ${chart.width} ${chart.height}`} preserveAspectRatio="none" role="img" aria-label={label}>
        {[0.25, 0.5, 0.75].map((share) => (
          <line key={share} className="grid" x1={chart.width * share} x2={chart.width * share} y1={0} y2={chart.height} />
        ))}
        <line className="grid" x1={0} x2={chart.width} y1={chart.height / 2} y2={chart.height / 2} />
        {length > 1 && areas.map((area) => <path key={area.name} className={`layer ${area.name}`} d={area.path} />)}
      </svg>
      <div className="chart-time small soft" aria-hidden="true">
        <span>{slots === 360 ? "an hour ago" : `${slots / 6} min ago`}</span>
        <span>now</span>
      </div>
    </div>
  );
}

/** nice rounds up to a number that suits a scale. */
export function nice(value: number): number {
  const step = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 4, 6, 8, 10]) if (value <= step * factor) return step * factor;
  return value;
}
