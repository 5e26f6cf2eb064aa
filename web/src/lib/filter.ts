// Reads and writes the filters in a page's address. Invalid filters are ignored and reported.

/** Label is a label of a claim or an execution. */
export interface Label {
  name: string;
  value: string;
}

/** LabelFilter selects a label by name and value; null selects any value. */
export interface LabelFilter {
  name: string;
  value: string | null;
}

/** Filters holds the filters of an address, in the form of the API's arguments. */
export interface Filters {
  environment: string;
  runner: string;
  state: string;
  outcome: string;
  /** A part of a label or a command. */
  text: string;
  heldBy: string;
  labels: LabelFilter[];
  /** The length of a range that ends now, in milliseconds. */
  since: number | null;
  from: string | null;
  to: string | null;
  /** The ignored parts of the address, each with the reason. */
  wrong: { name: string; value: string; why: string }[];
  /** The valid filters in words. */
  words: string[];
}

/** ranges lists the time ranges that end now, by their value in the address. */
export const ranges: readonly (readonly [value: string, text: string, ms: number])[] = [
  ["1h", "The last hour", 3_600_000],
  ["1d", "The last day", 86_400_000],
  ["7d", "The last 7 days", 7 * 86_400_000],
];

export type Options = readonly (readonly [value: string, text: string])[];

const most = { labels: 32, label: 256, text: 4096, id: 256 }; // bytes, except labels: their number

/** size returns a text's length in bytes, as the server counts it. */
const size = (text: string) => new TextEncoder().encode(text).length;

/** readLabel parses name=value, or a name alone; it returns undefined for an invalid label. */
export function readLabel(text: string): LabelFilter | undefined {
  const at = text.indexOf("=");
  const name = at < 0 ? text : text.slice(0, at);
  const value = at < 0 ? null : text.slice(at + 1);
  if (name === "" || size(name) > most.label || size(value ?? "") > most.label) return undefined;
  return { name, value };
}

/** labelText is the inverse of readLabel. */
export function labelText({ name, value }: LabelFilter): string {
  return value === null ? name : `${name}=${value}`;
}

/** readFilters reads the filters of a table that has these states and outcomes. */
export function readFilters(params: URLSearchParams, states: Options, outcomes: Options = []): Filters {
  const wrong: Filters["wrong"] = [];
  const words: string[] = [];
  const ignore = (name: string, value: string, why: string) => {
    wrong.push({ name, value, why });
    return "";
  };
  const text = (name: string, of: string, longest: number) => {
    const value = params.get(name) ?? "";
    if (value.includes("\0") || size(value) > longest) return ignore(name, value, `must have at most ${longest} bytes and no NUL`);
    if (value !== "") words.push(`${of} “${value}”`);
    return value;
  };
  const choice = (name: string, options: Options) => {
    const value = params.get(name) ?? "";
    const found = options.find(([option]) => option === value);
    if (found) words.push(found[1].toLowerCase());
    else if (value !== "") return ignore(name, value, options.length > 0 ? `must be one of ${options.map(([option]) => option).join(", ")}` : "this table has no such filter");
    return value;
  };
  const environment = text("environment", "environment", most.id);
  const runner = text("runner", "runner", most.id);
  const state = choice("state", states);
  const outcome = choice("outcome", outcomes);
  const labels: LabelFilter[] = [];
  for (const value of new Set(params.getAll("label"))) {
    const label = readLabel(value);
    if (!label) ignore("label", value, "must be a name or name=value, at most 256 bytes each");
    else if (labels.length === most.labels) ignore("label", value, `at most ${most.labels} labels are possible`);
    else {
      labels.push(label);
      words.push(`label ${labelText(label)}`);
    }
  }
  const heldBy = text("held-by", "held by", most.text);
  const looked = text("text", "text", most.text);
  const times = readTimes(params, ignore);
  if (times.words) words.push(times.words);
  const { since, from, to } = times;
  return { environment, runner, state, outcome, text: looked, heldBy, labels, since, from, to, wrong, words };
}

/** readTime parses a time of the years 1970 to 9999; it returns undefined for anything else. */
export function readTime(text: string): Date | undefined {
  const at = new Date(text);
  const year = at.getUTCFullYear();
  return year >= 1970 && year <= 9999 ? at : undefined;
}

/** readTimes reads since, from and to. It reports invalid and contradicting ones to ignore. */
function readTimes(params: URLSearchParams, ignore: (name: string, value: string, why: string) => void) {
  const moment = (name: string) => {
    const value = params.get(name);
    if (!value) return null;
    const at = readTime(value);
    if (at) return at;
    ignore(name, value, "must be a time such as 2026-11-27T09:30:00Z");
    return null;
  };
  const inAddress = params.get("since") ?? "";
  const range = ranges.find(([value]) => value === inAddress);
  if (inAddress && !range) ignore("since", inAddress, `must be one of ${ranges.map(([value]) => value).join(", ")}`);
  const from = moment("from");
  const to = moment("to");
  if (range) {
    for (const [name, at] of [["from", from], ["to", to]] as const) if (at) ignore(name, params.get(name)!, "can't be combined with since");
    return { since: range[2], from: null, to: null, words: range[1].toLowerCase() };
  }
  if (from && to && to <= from) {
    ignore("to", params.get("to")!, "must be after from");
    return { since: null, from: from.toISOString(), to: null, words: `from ${from.toLocaleString()}` };
  }
  const words = [from && `from ${from.toLocaleString()}`, to && `to ${to.toLocaleString()}`].filter(Boolean).join(" ");
  return { since: null, from: from?.toISOString() ?? null, to: to?.toISOString() ?? null, words };
}

/** timesAt returns the query variables for a time filter, with ranges ending now. */
export function timesAt({ since, from, to }: Partial<Pick<Filters, "since" | "from" | "to">>, now = Date.now()) {
  return { from: since ? new Date(now - since).toISOString() : (from ?? null), to: to ?? null };
}

/** withLabel returns the address of a table with one more label as a filter. */
export function withLabel(path: string, params: URLSearchParams, label: Label): string {
  const after = new URLSearchParams(params);
  if (!after.getAll("label").includes(labelText(label))) after.append("label", labelText(label));
  return `${path}?${after}`;
}

/** localTime formats a time for an input of type datetime-local: local time, to the minute. */
export function localTime(time: string): string {
  const at = new Date(time);
  const two = (n: number) => String(n).padStart(2, "0");
  return `${String(at.getFullYear()).padStart(4, "0")}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}
