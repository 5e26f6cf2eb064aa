// Filters as they stand in an address. What can't be used there is said, and ignored.

export interface Label {
  name: string;
  value: string;
}

/** A label of this name; with null of any value. */
export interface LabelFilter {
  name: string;
  value: string | null;
}

/** The filters of an address, as they are asked for. */
export interface Read {
  environment: string;
  runner: string;
  state: string;
  outcome: string;
  /** In a label or a command. */
  text: string;
  heldBy: string;
  labels: LabelFilter[];
  /** The last so many milliseconds. */
  since: number | null;
  from: string | null;
  to: string | null;
  /** Why parts of the address are ignored; by `name=value`. */
  wrong: { name: string; value: string; why: string }[];
  /** What is looked for, in words. */
  words: string[];
}

/** The ranges that end now, by what stands in the address. */
export const ranges: readonly (readonly [value: string, text: string, ms: number])[] = [
  ["1h", "The last hour", 3_600_000],
  ["1d", "The last day", 86_400_000],
  ["7d", "The last 7 days", 7 * 86_400_000],
];

export type Options = readonly (readonly [value: string, text: string])[];

const most = { labels: 32, label: 256, text: 4096, id: 256 }; // bytes, but for the first

const size = (text: string) => new TextEncoder().encode(text).length;

/** Reads a label that is written as name=value, or as a name alone; undefined: there can be none. */
export function readLabel(text: string): LabelFilter | undefined {
  const at = text.indexOf("=");
  const name = at < 0 ? text : text.slice(0, at);
  const value = at < 0 ? null : text.slice(at + 1);
  if (name === "" || size(name) > most.label || size(value ?? "") > most.label) return undefined;
  return { name, value };
}

export function written({ name, value }: LabelFilter): string {
  return value === null ? name : `${name}=${value}`;
}

/** Reads the filters of a table that has these states and outcomes. */
export function readFilters(params: URLSearchParams, states: Options, outcomes: Options = []): Read {
  const wrong: Read["wrong"] = [];
  const words: string[] = [];
  const ignore = (name: string, value: string, why: string) => {
    wrong.push({ name, value, why });
    return "";
  };
  const text = (name: string, of: string, longest: number) => {
    const value = params.get(name) ?? "";
    if (value.includes("\0") || size(value) > longest) return ignore(name, value, `a text has at most ${longest} bytes, without NUL`);
    if (value !== "") words.push(`${of} “${value}”`);
    return value;
  };
  const choice = (name: string, options: Options) => {
    const value = params.get(name) ?? "";
    const found = options.find(([option]) => option === value);
    if (found) words.push(found[1].toLowerCase());
    else if (value !== "") return ignore(name, value, options.length > 0 ? `there are ${options.map(([option]) => option).join(", ")}` : "this table has none");
    return value;
  };
  const environment = text("environment", "environment", most.id);
  const runner = text("runner", "runner", most.id);
  const state = choice("state", states);
  const outcome = choice("outcome", outcomes);
  const labels: LabelFilter[] = [];
  for (const value of new Set(params.getAll("label"))) {
    const label = readLabel(value);
    if (!label) ignore("label", value, "a label is a name, or name=value, of 256 bytes each at most");
    else if (labels.length === most.labels) ignore("label", value, `there are ${most.labels} labels at most`);
    else {
      labels.push(label);
      words.push(`label ${written(label)}`);
    }
  }
  const heldBy = text("held-by", "held by", most.text);
  const looked = text("text", "text", most.text);
  const times = readTimes(params, ignore);
  if (times.words) words.push(times.words);
  const { since, from, to } = times;
  return { environment, runner, state, outcome, text: looked, heldBy, labels, since, from, to, wrong, words };
}

/** Reads a time of the years 1970 to 9999; undefined: there is none. */
export function readTime(text: string): Date | undefined {
  const at = new Date(text);
  const year = at.getUTCFullYear();
  return year >= 1970 && year <= 9999 ? at : undefined;
}

function readTimes(params: URLSearchParams, ignore: (name: string, value: string, why: string) => void) {
  const moment = (name: string) => {
    const value = params.get(name);
    if (!value) return null;
    const at = readTime(value);
    if (at) return at;
    ignore(name, value, "a time is written as 2026-11-27T09:30:00Z");
    return null;
  };
  const inAddress = params.get("since") ?? "";
  const range = ranges.find(([value]) => value === inAddress);
  if (inAddress && !range) ignore("since", inAddress, `there are ${ranges.map(([value]) => value).join(", ")}`);
  const from = moment("from");
  const to = moment("to");
  if (range) {
    for (const [name, at] of [["from", from], ["to", to]] as const) if (at) ignore(name, params.get(name)!, "since is there, too");
    return { since: range[2], from: null, to: null, words: range[1].toLowerCase() };
  }
  if (from && to && to <= from) {
    ignore("to", params.get("to")!, "it isn't after from");
    return { since: null, from: from.toISOString(), to: null, words: `from ${from.toLocaleString()}` };
  }
  const words = [from && `from ${from.toLocaleString()}`, to && `to ${to.toLocaleString()}`].filter(Boolean).join(" ");
  return { since: null, from: from?.toISOString() ?? null, to: to?.toISOString() ?? null, words };
}

/** The variables of a query for what was read, at this moment. */
export function timesAt({ since, from, to }: Partial<Pick<Read, "since" | "from" | "to">>, now = Date.now()) {
  return { from: since ? new Date(now - since).toISOString() : (from ?? null), to: to ?? null };
}

/** The address of a table that has one label more. */
export function withLabel(path: string, params: URLSearchParams, label: Label): string {
  const after = new URLSearchParams(params);
  if (!after.getAll("label").includes(written(label))) after.append("label", written(label));
  return `${path}?${after}`;
}

/** A time as an input of the type datetime-local has it: this browser's, to the minute. */
export function localTime(time: string): string {
  const at = new Date(time);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${String(at.getFullYear()).padStart(4, "0")}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}
