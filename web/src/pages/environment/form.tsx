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
  /** Whether it is only looked at. */
  readOnly?: boolean;
  /** Among which the tenant of a new one is chosen; fewer than two: there is no choice. */
  tenants?: readonly string[];
  machine: Machine;
  wrong: readonly WrongField[];
  /** The one of them for which the form wasn't sent, or was refused: it gets the focus. */
  refused?: WrongField | undefined;
  onChange: (draft: Draft) => void;
}

const inFirst = new Set(["id", "image"]);

/** The fields of an environment, each with its unit, and with what the server said about it. */
export function EnvironmentFields({ draft, isNew, readOnly = false, tenants = [], machine, wrong, refused, onChange }: FormProps) {
  const [picked, setPicked] = useState("");
  const language = languageOf(draft) || picked;
  const [opened, setOpened] = useState(() => readOnly || isAdvanced(draft));
  const fields = useRef<HTMLFieldSetElement>(null);
  const advancedWrong = wrong.some(({ field }) => !inFirst.has(field));
  useEffect(() => {
    const first = refused && fields.current?.querySelector<HTMLElement>("[aria-invalid=true]");
    const around = first?.closest("details");
    if (around) around.open = true; // it may have been closed over an error
    first?.focus();
  }, [refused]);

  const set = <Key extends keyof Draft>(key: Key, value: Draft[Key]) => onChange({ ...draft, [key]: value });
  const wrongAt = (field: string) => wrong.find((one) => one.field === field || one.field.startsWith(`${field}.`))?.message;
  const props = { draft, set, wrongAt };
  const chosen = languageNamed(language);
  const missing = lacking(draft, chosen, machine);
  const size = sizeOf(draft);
  return (
    <fieldset className="fields" ref={fields} disabled={readOnly} aria-label="What its runners are made from">
      {isNew && <TextField {...props} of="id" field="id" label="Name" hint="Letters, digits, dots, dashes and underscores. Programs name the environment by it." />}
      <Field label="Language" hint="Sets the image, and loads its interpreter where that makes programs start faster.">
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
            <option value="">Any that the image has</option>
            {languages.map(({ name }) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </Field>
      <TextField {...props} of="image" field="image" label="Image" hint="The programs to start with. host: this machine's own, read-only. Else a container image such as python:3.12, or file: and the name of an archive on the server; it is looked up, and pinned, when it is saved." />
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
            <option value="">{size === "" ? `Its own: ${sizeInWords(draft, machine)}` : "Another one, under Advanced"}</option>
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
