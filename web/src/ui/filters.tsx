import { useEffect, useEffectEvent, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { useCaller } from "../lib/caller";
import { localTime, ranges, readLabel, readTime, labelText, type Filters } from "../lib/filter";
import { graphql } from "../lib/graphql";
import { useQuery } from "../lib/hooks";
import { Empty, Notice } from "./parts";
import { SafeText } from "./safetext";

/** Change maps filters to new values; "" or an empty list removes a filter. */
export type Change = Readonly<Record<string, string | readonly string[]>>;

/**
 * useFilters returns the filters in the address. Each change adds a history entry, except further typing in a text.
 */
export function useFilters(): [URLSearchParams, (change: Change) => void] {
  const [search, setSearch] = useSearchParams();
  const set = (change: Change) => {
    const continues = Object.entries(change).every(([name, value]) => typing.has(name) && search.get(name) && value !== "");
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(change)) {
          after.delete(name);
          for (const one of typeof value === "string" ? [value] : value) if (one !== "") after.append(name, one);
        }
        return after;
      },
      { replace: continues },
    );
  };
  return [search, set];
}

const typing = new Set(["text", "held-by", "from", "to", "action"]);

/** useFilter returns one filter of the address. */
export function useFilter(name: string): [string, (value: string) => void] {
  const [search, set] = useFilters();
  return [search.get(name) ?? "", (value) => set({ [name]: value })];
}

/**
 * useTenantFilter returns the tenant in the address; "" for callers without a TenantFilter, who couldn't clear it.
 */
export function useTenantFilter(): [string, (value: string) => void] {
  const { caller, showTenants } = useCaller();
  const [tenant, setTenant] = useFilter("tenant");
  return [caller && !showTenants ? "" : tenant, setTenant];
}

const EnvironmentIdsQuery = graphql(`
  query EnvironmentIds {
    environments {
      id
    }
  }
`);

/**
 * EnvironmentFilter chooses an environment. A deleted one stays chosen, since its executions are
 * kept.
 */
export function EnvironmentFilter({ value, onChange, all = "All environments" }: { value: string; onChange: (value: string) => void; all?: string }) {
  const { data } = useQuery(EnvironmentIdsQuery, {});
  const ids = data?.environments.map((environment) => environment.id) ?? [];
  if (value !== "" && !ids.includes(value)) ids.push(value);
  return <Choice label="Environment" value={value} onChange={onChange} all={all} options={ids.map((id) => [id, id])} />;
}

/**
 * TenantFilter chooses a tenant. It reserves its place until the number of tenants is known, so put it last in its
 * row.
 */
export function TenantFilter({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const { caller, showTenants, tenants } = useCaller();
  if (caller && !showTenants) return null;
  const names = value === "" || tenants.includes(value) ? tenants : [...tenants, value];
  return (
    <span className={caller ? undefined : "pending"} inert={!caller}>
      <Choice label="Tenant" value={value} onChange={onChange} all="All tenants" options={names.map((name) => [name, name])} />
    </span>
  );
}

/** ActiveFilter shows an active filter as a button that removes it. */
export function ActiveFilter({ to, all, onClear }: { to: string; all: string; onClear: () => void }) {
  return (
    <button type="button" className="button small" aria-label={`Only ${to}: ${all}`} title={all} onClick={onClear}>
      Only {to} ×
    </button>
  );
}

export interface ChoiceProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  all: string;
  options: readonly (readonly [value: string, text: string])[];
}

/** Choice is a list with one more entry for no filter, whose value is "". */
export function Choice({ label, value, onChange, all, options }: ChoiceProps) {
  return (
    <label>
      <span className="hidden-text">{label}</span>
      <select className="select" value={value} onChange={(event) => onChange(event.target.value)}>
        <option value="">{all}</option>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

export interface SearchProps {
  label: string;
  value: string;
  onChange: (value: string) => void;
  placeholder: string;
}

/** Search is a search input. It reports its text after 300 ms without a key, or on Enter. */
export function Search({ label, value, onChange, placeholder }: SearchProps) {
  const [text, setText] = useState(value);
  const looked = useEffectEvent(() => {
    if (text !== value) onChange(text);
  });
  const shown = useEffectEvent(() => setText(value)); // for example after a step back
  useEffect(() => shown(), [value]);
  useEffect(() => {
    const timer = setTimeout(() => looked(), 300);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <input
      className="input fit"
      type="search"
      aria-label={label}
      placeholder={placeholder}
      value={text}
      onChange={(event) => setText(event.target.value)}
      onKeyDown={(event) => event.key === "Enter" && onChange(text)}
    />
  );
}

export interface FilteredProps {
  read: Filters;
  set: (change: Change) => void;
}

/** TimeFilter chooses a range that ends now, or a begin and an end. */
export function TimeFilter({ read: { since, from, to }, set }: FilteredProps) {
  const [open, setOpen] = useState(false);
  const range = ranges.find(([, , ms]) => ms === since)?.[0] ?? "";
  const between = range === "" && (open || from !== null || to !== null);
  const choose = (value: string) => {
    setOpen(value === "between");
    if (value !== "between") set({ since: value, from: "", to: "" });
    else if (range) set({ since: "" });
  };
  const change = (name: "from" | "to") => (value: string) => {
    setOpen(true); // keeps the inputs open when both are empty
    set({ [name]: value });
  };
  return (
    <>
      <Choice label="Time" value={between ? "between" : range} onChange={choose} all="Any time" options={[...ranges.map(([value, text]) => [value, text] as const), ["between", "From – to"]]} />
      {between && (
        <>
          <TimeInput label="From" value={from} onChange={change("from")} />
          <TimeInput label="to" value={to} onChange={change("to")} />
        </>
      )}
    </>
  );
}

/** TimeInput is a local time. It reports only years from 1970 on, because a half-typed year is 0002. */
function TimeInput({ label, value, onChange }: { label: string; value: string | null; onChange: (value: string) => void }) {
  const known = value ? localTime(value) : "";
  const [text, setText] = useState(known);
  const shown = useEffectEvent(() => setText(known));
  useEffect(() => shown(), [value]);
  return (
    <label className="row tight small">
      {label}
      <input
        type="datetime-local"
        className="input fit"
        value={text}
        onChange={({ target }) => {
          setText(target.value);
          if (target.value === "") onChange("");
          else {
            const at = readTime(target.value);
            if (at) onChange(at.toISOString());
          }
        }}
      />
    </label>
  );
}

/** LabelFilter shows the filtered labels and an input for one more. */
export function LabelFilter({ read: { labels }, set }: FilteredProps) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState(false);
  const all = labels.map(labelText);
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const label = readLabel(text.trim());
          setWrong(!label);
          if (!label) return;
          set({ label: [...new Set([...all, labelText(label)])] });
          setText("");
        }}
      >
        <input className="input fit" aria-label="Label, as name=value, then Enter" placeholder="Label: name=value ⏎" value={text} aria-invalid={wrong || undefined} onChange={(event) => setText(event.target.value)} />
      </form>
      {labels.map((label) => (
        <ActiveFilter key={labelText(label)} to={`label ${labelText(label)}`} all="without this label" onClear={() => set({ label: all.filter((one) => one !== labelText(label)) })} />
      ))}
    </>
  );
}

/** IgnoredFilters lists the invalid filters of the address with the reasons. */
export function IgnoredFilters({ read: { wrong }, set }: FilteredProps) {
  const [search] = useFilters();
  if (wrong.length === 0) return null;
  const without = (name: string) => search.getAll(name).filter((value) => !wrong.some((one) => one.name === name && one.value === value));
  return (
    <Notice
      kind="warn"
      action={
        <button type="button" className="button small" onClick={() => set(Object.fromEntries(wrong.map(({ name }) => [name, without(name)])))}>
          Remove from the address
        </button>
      }
    >
      The address has invalid filters, which are ignored: <SafeText text={wrong.map(({ name, value, why }) => `${name}=${value.slice(0, 80)} (${why})`).join("; ")} />.
    </Notice>
  );
}

/** NoMatches says that nothing matches the filters, and lists them. */
export function NoMatches({ what, read: { words }, path }: { what: string; read: Filters; path: string }) {
  return (
    <Empty title={`No matching ${what}`}>
      <p className="break">
        No matches for these filters: <SafeText text={words.join(", ")} />.
      </p>
      <Link className="button" href={path}>
        Clear the filters
      </Link>
    </Empty>
  );
}
