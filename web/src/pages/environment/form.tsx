import type { ReactNode } from "react";
import { bytes } from "../../lib/format";
import { Field } from "../../ui/parts";
import type { Draft, WrongField } from "./draft";

export interface FormProps {
  draft: Draft;
  isNew: boolean;
  /** Whether it is only looked at. */
  readOnly?: boolean;
  /** Among which the tenant of a new one is chosen; fewer than two: there is no choice. */
  tenants?: readonly string[];
  wrong: WrongField | undefined;
  onChange: (draft: Draft) => void;
}

/** The fields of an environment, each with its unit, and with what the server said about it. */
export function EnvironmentFields({ draft, isNew, readOnly = false, tenants = [], wrong, onChange }: FormProps) {
  const set = <Key extends keyof Draft>(key: Key, value: Draft[Key]) => onChange({ ...draft, [key]: value });
  const wrongAt = (field: string) => (wrong && (wrong.field === field || wrong.field.startsWith(`${field}.`)) ? wrong.message : undefined);

  const text = (key: "id" | "image" | "runtime" | "modules" | "allow" | "allowNames" | "exposedPorts", field: string, label: string, hint: ReactNode) => (
    <Field label={label} hint={hint} error={wrongAt(field)}>
      {(tie) => <input {...tie} className="input" value={draft[key]} spellCheck={false} autoComplete="off" onChange={(event) => set(key, event.target.value)} />}
    </Field>
  );
  type NumberKey = "cpuMHz" | "memoryMiB" | "processes" | "workspaceMiB" | "defaultTimeLimit" | "outputLimit" | "bandwidthMbit";
  const number = (key: NumberKey, field: string, label: string, unit: string, hint: ReactNode) => (
    <Field label={label} hint={hint} error={wrongAt(field)}>
      {(tie) => (
        <div className="with-unit">
          <input {...tie} className="input num" inputMode="numeric" value={draft[key]} autoComplete="off" onChange={(event) => set(key, event.target.value)} />
          <span>{unit}</span>
        </div>
      )}
    </Field>
  );

  return (
    <fieldset className="fields" disabled={readOnly} aria-label="What its runners are made from">
      {isNew && text("id", "id", "Id", "Letters, digits, dots, dashes and underscores. Programs name the environment by it.")}
      {isNew && tenants.length > 1 && (
        <Field label="Tenant" hint="To which it belongs." error={wrongAt("tenant")}>
          {(tie) => (
            <select {...tie} className="select" value={draft.tenant || "default"} onChange={(event) => set("tenant", event.target.value)}>
              {tenants.map((tenant) => (
                <option key={tenant}>{tenant}</option>
              ))}
            </select>
          )}
        </Field>
      )}
      {text("image", "image", "Image", "The file system to start with. host: this machine's own programs, read-only. Else a container image such as python:3.12, or file: and the name of an archive on the server; it is looked up, and pinned, when it is saved.")}
      <Field label="Warm runners" hint="Idle ones that are kept ready. 0: one is started when a claim waits for it." error={wrongAt("poolSize")}>
        {({ id, ...tie }) => (
          <div className="with-unit">
            <input
              type="range"
              className="grow"
              aria-label="Warm runners, as a slider"
              min={0}
              max={Math.max(20, Math.min(1000, Number(draft.poolSize) || 0))}
              value={Number(draft.poolSize) || 0}
              onChange={(event) => set("poolSize", event.target.value)}
            />
            <input {...tie} id={id} className="input num" style={{ width: "5rem" }} inputMode="numeric" value={draft.poolSize} autoComplete="off" onChange={(event) => set("poolSize", event.target.value)} />
          </div>
        )}
      </Field>
      {number("cpuMHz", "resources.cpuMHz", "CPU", "MHz", "A share: a tenth of a core's clock is a tenth of that core.")}
      {number("memoryMiB", "resources.memoryMiB", "Memory", "MiB", "Of all its processes together, without swap; files in the workspace count too.")}
      {number("processes", "resources.processes", "Processes", "at once", "Threads count as well.")}
      {number("workspaceMiB", "resources.workspaceMiB", "Workspace", "MiB", "Room for files in /workspace, and as much again in /tmp.")}
      {number("defaultTimeLimit", "defaultTimeLimit", "Time limit", "seconds", "Of a program that names none itself. 0: without limit.")}
      {number("outputLimit", "outputLimit", "Output limit", "bytes", `What a program may print before it is stopped${sized(draft.outputLimit)}.`)}
      <Field label="Isolation" hint="How a runner is kept apart from the machine." error={wrongAt("isolation")}>
        {(tie) => (
          <select {...tie} className="select" value={draft.isolation} onChange={(event) => set("isolation", event.target.value as Draft["isolation"])}>
            <option value="NAMESPACES">Namespaces, cgroups and seccomp</option>
            <option value="GVISOR">gVisor, a kernel of its own</option>
            <option value="NONE">None, for trusted programs</option>
            <option value="CLUSTER">What the cluster's driver gives</option>
          </select>
        )}
      </Field>
      {text("runtime", "runtime", "Runtime", "The name of another OCI runtime, from the server's settings. Empty: the built-in one.")}
      <Field label="Interpreter" hint="What each runner loads before it is idle. Its programs then start in a few milliseconds." error={wrongAt("warm.interpreter") ?? (wrong?.field === "warm" ? wrong.message : undefined)}>
        {(tie) => (
          <select {...tie} className="select" value={draft.interpreter} onChange={(event) => set("interpreter", event.target.value as Draft["interpreter"])}>
            <option value="NONE">None: each program starts its own</option>
            <option value="PYTHON">Python 3</option>
          </select>
        )}
      </Field>
      {draft.interpreter !== "NONE" && text("modules", "warm.modules", "Modules", "That the interpreter has imported then: numpy, pandas. Their memory is part of the runner's.")}
      <Field label="Network" error={wrongAt("network.access")} hint="Whether programs reach what is public. Private networks, the machine and other runners they never do.">
        {(tie) => (
          <span className="check">
            <input {...tie} type="checkbox" checked={draft.access} onChange={(event) => set("access", event.target.checked)} />
            <span aria-hidden="true">{draft.access ? "Programs reach the network" : "Cut off"}</span>
          </span>
        )}
      </Field>
      {text("allow", "network.allow", "Allowed networks", "All that is reached, with the names: 151.101.0.0/16, 2a04:4e42::/32. Empty, like the names: all that is public.")}
      {text("allowNames", "network.allowNames", "Allowed names", "Such as pypi.org, *.pythonhosted.org. Only these are resolved then.")}
      {number("bandwidthMbit", "network.bandwidthMbit", "Bandwidth", "Mbit/s", "Of one runner, each way. 0: as much as the server gives.")}
      {text("exposedPorts", "network.exposedPorts", "Exposed ports", "Ports that are mapped to the outside, for example 80, 8080. Empty: none.")}
      <Field label="Shared" error={wrongAt("shared")} hint="Whether every tenant may see it and claim its runners.">
        {(tie) => (
          <span className="check">
            <input {...tie} type="checkbox" checked={draft.shared} onChange={(event) => set("shared", event.target.checked)} />
            <span aria-hidden="true">{draft.shared ? "With all tenants" : "Its tenant's alone"}</span>
          </span>
        )}
      </Field>
      <Variables draft={draft} readOnly={readOnly} wrong={wrong} onChange={(variables) => set("variables", variables)} />
    </fieldset>
  );
}

function sized(text: string): string {
  return /^\d{4,15}$/.test(text) ? `: ${bytes(Number(text))}` : "";
}

interface VariablesProps {
  draft: Draft;
  readOnly: boolean;
  wrong: WrongField | undefined;
  onChange: (variables: Draft["variables"]) => void;
}

function Variables({ draft, readOnly, wrong, onChange }: VariablesProps) {
  const at = wrong?.field.startsWith("variables") ? Number(wrong.field.split(".")[1] ?? -1) : -2;
  const set = (index: number, change: Partial<{ name: string; value: string }>) =>
    onChange(draft.variables.map((variable, i) => (i === index ? { ...variable, ...change } : variable)));
  return (
    <fieldset className="wide stack tight" style={{ border: 0, padding: 0, margin: 0 }}>
      <legend className="field-label" style={{ padding: 0, marginBottom: "0.25rem" }}>
        Environment variables
      </legend>
      {draft.variables.map((variable, index) => (
        // A row has no other name than its place.
        <div className="row" key={index}>
          <input className="input mono" style={{ flex: "1 1 8rem" }} aria-label={`Name of variable ${index + 1}`} aria-invalid={at === index || undefined} placeholder="NAME" value={variable.name} spellCheck={false} onChange={(event) => set(index, { name: event.target.value })} />
          <input className="input mono" style={{ flex: "2 1 10rem" }} aria-label={`Value of variable ${index + 1}`} placeholder="value" value={variable.value} spellCheck={false} onChange={(event) => set(index, { value: event.target.value })} />
          {!readOnly && (
            <button type="button" className="button small" aria-label={`Remove variable ${index + 1}`} onClick={() => onChange(draft.variables.filter((_, i) => i !== index))}>
              Remove
            </button>
          )}
        </div>
      ))}
      {at !== -2 && (
        <span className="wrong small" role="alert" style={{ color: "var(--bad)" }}>
          {wrong?.message}
        </span>
      )}
      <div className="row spread">
        <span className="soft small">They reach programs verbatim: nothing in them is expanded.</span>
        {!readOnly && (
          <button type="button" className="button small" onClick={() => onChange([...draft.variables, { name: "", value: "" }])}>
            Add a variable
          </button>
        )}
      </div>
    </fieldset>
  );
}
