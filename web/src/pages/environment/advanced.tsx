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

/** Advanced has the fields of an environment other than its name, language, image and size. */
export function Advanced({ draft, set, wrongAt, isNew, readOnly, tenants, machine, wrong }: AdvancedProps) {
  const props = { draft, set, wrongAt };
  const elsewhere = wrong.find(({ field }) => !shown.test(field));
  const { coreMHz } = machine;
  const mhz = /^\d+$/.test(draft.cpuMHz) ? `; this is stored as ${count(Number(draft.cpuMHz))} MHz` : "";
  const bytes = /^\d+$/.test(draft.outputLimit) ? `: ${count(Number(draft.outputLimit))} bytes` : "";
  return (
    <>
      {isNew && tenants.length > 1 && (
        <Field label="Tenant" hint="The tenant that owns the environment." error={wrongAt("tenant")}>
          {(tie) => (
            <select {...tie} className="select" value={draft.tenant || "default"} onChange={(event) => set("tenant", event.target.value)}>
              {tenants.map((tenant) => (
                <option key={tenant}>{tenant}</option>
              ))}
            </select>
          )}
        </Field>
      )}
      <Field label="Warm runners" hint="Idle runners kept ready. 0: a runner is started when a claim waits for it." error={wrongAt("poolSize")}>
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
        <NumberField {...props} of="cpuMHz" field="resources.cpuMHz" label="CPU" unit="MHz" hint="A share of a core: a tenth of its clock is a tenth of the core." />
      )}
      <NumberField {...props} of="memoryMiB" field="resources.memoryMiB" label="Memory" unit="MiB" hint="Of all processes together, without swap. Files in the workspace count too." />
      <NumberField {...props} of="processes" field="resources.processes" label="Processes" unit="at a time" hint="Threads count too." />
      <NumberField {...props} of="workspaceMiB" field="resources.workspaceMiB" label="Workspace" unit="MiB" hint="Space for files in /workspace, and the same again in /tmp." />
      <NumberField {...props} of="defaultTimeLimit" field="defaultTimeLimit" label="Time limit" unit="seconds" hint="For programs started without their own limit. 0: no limit." />
      <NumberField {...props} of="outputLimit" field="outputLimit" label="Output limit" unit="MiB" factor={1 << 20} hint={`Output after which a program is stopped${bytes}.`} />
      <CheckField {...props} of="access" field="network.access" label="Allow network access" hint="Allows public addresses, but no private networks, not this machine and no other runners. Without it programs reach nothing." />
      <TextField {...props} of="allow" field="network.allow" label="Allowed networks" hint="Only these networks and the allowed names are reachable: 151.101.0.0/16, 2a04:4e42::/32. Both empty: all public addresses." />
      <TextField {...props} of="allowNames" field="network.allowNames" label="Allowed names" hint="For example pypi.org, *.pythonhosted.org. Only these names are then resolved." />
      <NumberField {...props} of="bandwidthMbit" field="network.bandwidthMbit" label="Bandwidth" unit="Mbit/s" hint="Of one runner, in each direction. 0: the server's limit." />
      <TextField {...props} of="exposedPorts" field="network.exposedPorts" label="Exposed ports" hint="Ports mapped to the outside, for example 80, 8080. Empty: none." />
      <Field label="Isolation" hint="The isolation tier of the runners." error={wrongAt("isolation")}>
        {(tie) => (
          <select {...tie} className="select" value={draft.isolation} onChange={(event) => set("isolation", event.target.value as Draft["isolation"])}>
            <option value="NAMESPACES">Namespaces, cgroups and seccomp</option>
            <option value="GVISOR">gVisor, a separate kernel</option>
            <option value="NONE">None, for trusted programs</option>
            <option value="CLUSTER">Isolation of the cluster's driver</option>
          </select>
        )}
      </Field>
      <TextField {...props} of="runtime" field="runtime" label="Runtime" hint="The name of another OCI runtime, from the server's settings. Empty: the built-in one." />
      <Field label="Interpreter" hint="Loaded in each runner before it is idle. Programs then start in a few milliseconds." error={wrongAt("warm.interpreter") ?? wrong.find(({ field }) => field === "warm")?.message}>
        {(tie) => (
          <select {...tie} className="select" value={draft.interpreter} onChange={(event) => set("interpreter", event.target.value as Draft["interpreter"])}>
            <option value="NONE">None: each program starts its own</option>
            <option value="PYTHON">Python 3</option>
          </select>
        )}
      </Field>
      {draft.interpreter !== "NONE" && <TextField {...props} of="modules" field="warm.modules" label="Modules" hint="Modules that the interpreter imports in advance: numpy, pandas. They use the runner's memory." />}
      <CheckField {...props} of="shared" field="shared" label="Share with all tenants" hint="Every tenant can then see the environment and claim its runners. Otherwise only its own tenant can." />
      <Variables draft={draft} readOnly={readOnly} wrong={wrong} onChange={(variables) => set("variables", variables)} />
      {elsewhere && (
        <div className="wide">
          <Notice kind="bad">{`${elsewhere.field}: ${elsewhere.message}`}</Notice>
        </div>
      )}
    </>
  );
}
