import { count } from "../../lib/format";
import { Field, Notice } from "../../ui/parts";
import type { Draft, WrongField } from "./draft";
import { CheckField, NumberField, TextField, type DraftFieldProps } from "./fields";
import type { Machine } from "./machine";
import { Variables } from "./variables";

export interface AdvancedProps extends Pick<DraftFieldProps<keyof Draft>, "draft" | "set" | "wrongAt"> {
  isNew: boolean;
  readOnly: boolean;
  tenants: readonly string[];
  machine: Machine;
  wrong: readonly WrongField[];
}

const shown = /^(id|tenant|image|poolSize|resources\.|defaultTimeLimit|outputLimit|isolation|runtime|warm|network\.|shared|variables)/;

/** What an environment has beside its name, its image and its size. */
export function Advanced({ draft, set, wrongAt, isNew, readOnly, tenants, machine, wrong }: AdvancedProps) {
  const props = { draft, set, wrongAt };
  const elsewhere = wrong.find(({ field }) => !shown.test(field));
  const { coreMHz } = machine;
  const mhz = /^\d+$/.test(draft.cpuMHz) ? `; this is stored as ${count(Number(draft.cpuMHz))} MHz` : "";
  const bytes = /^\d+$/.test(draft.outputLimit) ? `: ${count(Number(draft.outputLimit))} bytes` : "";
  return (
    <>
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
      <Field label="Warm runners" hint="Idle ones that are kept ready. 0: one is started when a claim waits for it." error={wrongAt("poolSize")}>
        {(tie) => (
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
            <input {...tie} className="input num" style={{ width: "5rem" }} inputMode="numeric" value={draft.poolSize} autoComplete="off" onChange={(event) => set("poolSize", event.target.value)} />
          </div>
        )}
      </Field>
      {coreMHz ? (
        <NumberField {...props} of="cpuMHz" field="resources.cpuMHz" label="CPU" unit="cores" factor={coreMHz} hint={`One core is ${count(coreMHz)} MHz${mhz}.`} />
      ) : (
        <NumberField {...props} of="cpuMHz" field="resources.cpuMHz" label="CPU" unit="MHz" hint="A share: a tenth of a core's clock is a tenth of that core." />
      )}
      <NumberField {...props} of="memoryMiB" field="resources.memoryMiB" label="Memory" unit="MiB" hint="Of all its processes together, without swap; files in the workspace count too." />
      <NumberField {...props} of="processes" field="resources.processes" label="Processes" unit="at once" hint="Threads count as well." />
      <NumberField {...props} of="workspaceMiB" field="resources.workspaceMiB" label="Workspace" unit="MiB" hint="Room for files in /workspace, and as much again in /tmp." />
      <NumberField {...props} of="defaultTimeLimit" field="defaultTimeLimit" label="Time limit" unit="seconds" hint="Of a program that names none itself. 0: without limit." />
      <NumberField {...props} of="outputLimit" field="outputLimit" label="Output limit" unit="MiB" factor={1 << 20} hint={`What a program may print before it is stopped${bytes}.`} />
      <CheckField {...props} of="access" field="network.access" label="Allow network access" hint="Programs then reach what is public, but no private network, not the machine and no other runner. Without it they reach nothing." />
      <TextField {...props} of="allow" field="network.allow" label="Allowed networks" hint="All that is reached, with the names: 151.101.0.0/16, 2a04:4e42::/32. Empty, like the names: all that is public." />
      <TextField {...props} of="allowNames" field="network.allowNames" label="Allowed names" hint="Such as pypi.org, *.pythonhosted.org. Only these are resolved then." />
      <NumberField {...props} of="bandwidthMbit" field="network.bandwidthMbit" label="Bandwidth" unit="Mbit/s" hint="Of one runner, each way. 0: as much as the server gives." />
      <TextField {...props} of="exposedPorts" field="network.exposedPorts" label="Exposed ports" hint="Ports that are mapped to the outside, for example 80, 8080. Empty: none." />
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
      <TextField {...props} of="runtime" field="runtime" label="Runtime" hint="The name of another OCI runtime, from the server's settings. Empty: the built-in one." />
      <Field label="Interpreter" hint="What each runner loads before it is idle. Its programs then start in a few milliseconds." error={wrongAt("warm.interpreter") ?? wrong.find(({ field }) => field === "warm")?.message}>
        {(tie) => (
          <select {...tie} className="select" value={draft.interpreter} onChange={(event) => set("interpreter", event.target.value as Draft["interpreter"])}>
            <option value="NONE">None: each program starts its own</option>
            <option value="PYTHON">Python 3</option>
          </select>
        )}
      </Field>
      {draft.interpreter !== "NONE" && <TextField {...props} of="modules" field="warm.modules" label="Modules" hint="That the interpreter has imported then: numpy, pandas. Their memory is part of the runner's." />}
      <CheckField {...props} of="shared" field="shared" label="Share with all tenants" hint="Every tenant then sees it and claims its runners. Without it, its own tenant alone." />
      <Variables draft={draft} readOnly={readOnly} wrong={wrong} onChange={(variables) => set("variables", variables)} />
      {elsewhere && (
        <div className="wide">
          <Notice kind="bad">{`${elsewhere.field}: ${elsewhere.message}`}</Notice>
        </div>
      )}
    </>
  );
}
