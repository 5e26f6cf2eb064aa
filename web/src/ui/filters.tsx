import { useEffect, useEffectEvent, useState } from "react";
import { useSearchParams } from "wouter";
import { useCaller } from "../lib/caller";
import { graphql } from "../lib/graphql";
import { useQuery } from "../lib/hooks";

/** A filter that stands in the address, so that a link shows the same. */
export function useFilter(name: string): [string, (value: string) => void] {
  const [search, setSearch] = useSearchParams();
  const set = (value: string) =>
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        if (value === "") after.delete(name);
        else after.set(name, value);
        return after;
      },
      { replace: true },
    );
  return [search.get(name) ?? "", set];
}

/** The tenant in the address. A caller without a TenantFilter has none: nothing there could clear it. */
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

export function EnvironmentFilter({ value, onChange, all = "All environments" }: { value: string; onChange: (value: string) => void; all?: string }) {
  const { data } = useQuery(EnvironmentIdsQuery, {});
  const ids = data?.environments.map((environment) => environment.id) ?? [];
  if (value !== "" && !ids.includes(value)) ids.push(value);
  return <Choice label="Environment" value={value} onChange={onChange} all={all} options={ids.map((id) => [id, id])} />;
}

/** Of which tenant. It keeps its place until it is known whether the caller sees several; stand it last in its row. */
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

/** That only what belongs to one thing is shown, which a click ends. */
export function Narrowed({ to, all, onClear }: { to: string; all: string; onClear: () => void }) {
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

/** Text to look for: it is looked for once the typing pauses, or with Enter. */
export function Search({ label, value, onChange, placeholder }: SearchProps) {
  const [text, setText] = useState(value);
  const looked = useEffectEvent(() => {
    if (text !== value) onChange(text);
  });
  const shown = useEffectEvent(() => setText(value)); // it was changed elsewhere, by going back for example
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
