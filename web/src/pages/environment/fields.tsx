import { useState, type ReactNode } from "react";
import { Field } from "../../ui/parts";
import type { Draft } from "./draft";
import { scaled, unscaled } from "./machine";

/** KeyOf is the name of a draft's field whose type is exactly Value. */
type KeyOf<Value> = { [Key in keyof Draft]: Draft[Key] extends Value ? (Value extends Draft[Key] ? Key : never) : never }[keyof Draft];

/** DraftFieldProps connects an input with a field of the draft. */
export interface DraftFieldProps<Key extends keyof Draft> {
  draft: Draft;
  set: <K extends keyof Draft>(key: K, value: Draft[K]) => void;
  wrongAt: (field: string) => string | undefined;
  of: Key;
  /** The field's name in the API. */
  field: string;
  label: string;
  hint?: ReactNode;
}

/** TextField is a text of a draft. */
export function TextField({ draft, set, wrongAt, of, field, label, hint }: DraftFieldProps<KeyOf<string>>) {
  return (
    <Field label={label} hint={hint} error={wrongAt(field)}>
      {(tie) => <input {...tie} className="input" value={draft[of]} spellCheck={false} autoComplete="off" onChange={(event) => set(of, event.target.value)} />}
    </Field>
  );
}

export interface NumberFieldProps extends DraftFieldProps<KeyOf<string>> {
  unit: string;
  /** The stored amount that one unit is. */
  factor?: number;
}

/** NumberField is a number with its unit. A number typed in a larger unit stays as it was typed. */
export function NumberField({ draft, set, wrongAt, of, field, label, hint, unit, factor = 1 }: NumberFieldProps) {
  const [typed, setTyped] = useState("");
  const shown = factor === 1 ? draft[of] : unscaled(typed, factor) === draft[of] ? typed : scaled(draft[of], factor);
  return (
    <Field label={label} hint={hint} error={wrongAt(field)}>
      {(tie) => (
        <div className="with-unit">
          <input
            {...tie}
            className="input num"
            inputMode={factor === 1 ? "numeric" : "decimal"}
            value={shown}
            autoComplete="off"
            onChange={(event) => {
              setTyped(event.target.value);
              set(of, factor === 1 ? event.target.value : unscaled(event.target.value, factor));
            }}
          />
          <span>{unit}</span>
        </div>
      )}
    </Field>
  );
}

/** CheckField is a checkbox. Its label says what the checked state means. */
export function CheckField({ draft, set, wrongAt, of, field, label, hint }: DraftFieldProps<KeyOf<boolean>>) {
  return (
    <Field label={label} hint={hint} error={wrongAt(field)} check>
      {(tie) => <input {...tie} type="checkbox" checked={draft[of]} onChange={(event) => set(of, event.target.checked)} />}
    </Field>
  );
}
