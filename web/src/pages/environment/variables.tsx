import type { Draft, WrongField } from "./draft";

export interface VariablesProps {
  draft: Draft;
  readOnly: boolean;
  wrong: readonly WrongField[];
  onChange: (variables: Draft["variables"]) => void;
}

/** Variables edits the environment variables of every command. */
export function Variables({ draft, readOnly, wrong, onChange }: VariablesProps) {
  const problem = wrong.find(({ field }) => field.startsWith("variables"));
  const at = problem ? Number(problem.field.split(".")[1] ?? -1) : -2;
  const set = (index: number, change: Partial<{ name: string; value: string }>) =>
    onChange(draft.variables.map((variable, i) => (i === index ? { ...variable, ...change } : variable)));
  return (
    <fieldset className="wide stack tight" style={{ border: 0, padding: 0, margin: 0 }}>
      <legend className="field-label" style={{ padding: 0, marginBottom: "0.25rem" }}>
        Environment variables
      </legend>
      {draft.variables.map((variable, index) => (
        // The index is the only key that a row has.
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
          {problem?.message}
        </span>
      )}
      <div className="row spread">
        <span className="soft small">Programs get the values unchanged: nothing in them is expanded.</span>
        {!readOnly && (
          <button type="button" className="button small" onClick={() => onChange([...draft.variables, { name: "", value: "" }])}>
            Add a variable
          </button>
        )}
      </div>
    </fieldset>
  );
}
