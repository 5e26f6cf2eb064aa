import { useEffect, useRef, useState } from "react";
import { Field, Notice } from "../../ui/parts";
import { Advanced } from "./advanced";
import type { Draft, WrongField } from "./draft";
import { TextField } from "./fields";
import type { Machine } from "./machine";
import { isAdvanced, lacking, languageNamed, languageOf, languages, sizeInWords, sizeOf, sizes, withLanguage } from "./presets";

export interface FormProps {
  draft: Draft;
  isNew: boolean;
  /** Whether the caller may only read it. */
  readOnly?: boolean;
  /** The tenants to choose from for a new environment; fewer than two show no choice. */
  tenants?: readonly string[];
  machine: Machine;
  wrong: readonly WrongField[];
  /** The wrong field that stopped the form or that the server refused: it gets the focus. */
  refused?: WrongField | undefined;
  onChange: (draft: Draft) => void;
}

const inFirst = new Set(["id", "image"]);

/** EnvironmentFields has the fields of an environment, with units and with the server's errors at their fields. */
export function EnvironmentFields({ draft, isNew, readOnly = false, tenants = [], machine, wrong, refused, onChange }: FormProps) {
  const [picked, setPicked] = useState("");
  const language = languageOf(draft) || picked;
  const [opened, setOpened] = useState(() => readOnly || isAdvanced(draft));
  const fields = useRef<HTMLFieldSetElement>(null);
  const advancedWrong = wrong.some(({ field }) => !inFirst.has(field));
  useEffect(() => {
    const first = refused && fields.current?.querySelector<HTMLElement>("[aria-invalid=true]");
    const around = first?.closest("details");
    if (around) around.open = true; // the user may have closed it over an error
    first?.focus();
  }, [refused]);

  const set = <Key extends keyof Draft>(key: Key, value: Draft[Key]) => onChange({ ...draft, [key]: value });
  const wrongAt = (field: string) => wrong.find((one) => one.field === field || one.field.startsWith(`${field}.`))?.message;
  const props = { draft, set, wrongAt };
  const chosen = languageNamed(language);
  const missing = lacking(draft, chosen, machine);
  const size = sizeOf(draft);
  return (
    <fieldset className="fields" ref={fields} disabled={readOnly} aria-label="Fields of the environment">
      {isNew && <TextField {...props} of="id" field="id" label="Name" hint="Letters, digits, dots, dashes and underscores. Programs refer to the environment by this name." />}
      <Field label="Language" hint="Sets the image, and loads the interpreter if that makes programs start faster.">
        {(tie) => (
          <select
            {...tie}
            className="select"
            value={language}
            onChange={(event) => {
              setPicked(event.target.value);
              const next = languageNamed(event.target.value);
              onChange(next ? withLanguage(draft, next, machine) : { ...draft, interpreter: "NONE" });
            }}
          >
            <option value="">Any language in the image</option>
            {languages.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </Field>
      <TextField {...props} of="image" field="image" label="Image" hint="The files of a runner. host: this machine's programs, read-only. Else a container image such as python:3.12, or file: and the name of an archive on the server. Saving resolves the image and pins it." />
      <Field label="Size">
        {(tie) => (
          <select
            {...tie}
            className="select"
            value={size}
            onChange={(event) => {
              const next = sizes.find(({ name }) => name === event.target.value);
              if (next) onChange({ ...draft, ...next.amounts });
              else setOpened(true);
            }}
          >
            {sizes.map(({ name, amounts }) => (
              <option key={name} value={name}>{`${name}: ${sizeInWords(amounts, machine)}`}</option>
            ))}
            <option value="">{size === "" ? `Custom: ${sizeInWords(draft, machine)}` : "Custom, under Advanced"}</option>
          </select>
        )}
      </Field>
      {missing.length > 0 && (
        <div className="wide">
          <Notice
            kind="warn"
            action={
              chosen &&
              !readOnly && (
                <button type="button" className="button small" onClick={() => set("image", chosen.image)}>
                  Use {chosen.image}
                </button>
              )
            }
          >
            {`The image host has no ${missing.join(" and no ")} on this machine${chosen ? `: programs in ${chosen.name} won't start` : ""}.`}
          </Notice>
        </div>
      )}
      <details className="wide advanced" open={opened || advancedWrong} onToggle={(event) => setOpened(event.currentTarget.open)}>
        <summary>Advanced</summary>
        <div className="fields">
          <Advanced {...props} isNew={isNew} readOnly={readOnly} tenants={tenants} machine={machine} wrong={wrong} />
        </div>
      </details>
    </fieldset>
  );
}
