import type { ServerError } from "../../lib/request";
import { Failure, Field } from "../../ui/parts";
import { quotas, type TenantDraft, type WrongField } from "./quotas";

export interface TenantFormProps {
  draft: TenantDraft;
  isNew: boolean;
  wrong: WrongField | undefined;
  busy: boolean;
  error: ServerError | undefined;
  onChange: (draft: TenantDraft) => void;
  onSubmit: () => void;
  onClose: () => void;
}

/** TenantForm is the form of a tenant, with the server's errors at their fields. */
export function TenantForm({ draft, isNew, wrong, busy, error, onChange, onSubmit, onClose }: TenantFormProps) {
  const wrongAt = (field: string) => (wrong?.field === field ? wrong.message : undefined);
  return (
    <form
      className="stack"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
    >
      {isNew && (
        <Field label="Name" hint="Small letters, digits and hyphens. It can't be changed later." error={wrongAt("id")}>
          {(tie) => <input {...tie} className="input" value={draft.id} autoComplete="off" spellCheck={false} onChange={(event) => onChange({ ...draft, id: event.target.value })} />}
        </Field>
      )}
      <Field label="Weight" hint="Turns of its waiting claims for each turn of a tenant of weight 1." error={wrongAt("weight")}>
        {(tie) => <input {...tie} className="input num" inputMode="numeric" value={draft.weight} autoComplete="off" onChange={(event) => onChange({ ...draft, weight: event.target.value })} />}
      </Field>
      <p className="small soft">Quotas: an empty field means no limit, 0 allows nothing.</p>
      <div className="fields">
        {quotas.map(({ name, label, unit, hint }) => (
          <Field key={name} label={label} hint={hint} error={wrongAt(`quotas.${name}`)}>
            {(tie) => (
              <div className="with-unit">
                <input
                  {...tie}
                  className="input num"
                  inputMode="numeric"
                  placeholder="No limit"
                  value={draft.quotas[name]}
                  autoComplete="off"
                  onChange={(event) => onChange({ ...draft, quotas: { ...draft.quotas, [name]: event.target.value } })}
                />
                <span>{unit}</span>
              </div>
            )}
          </Field>
        ))}
      </div>
      <Failure error={error} />
      <div className="row">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" className="button primary" disabled={busy}>
          {isNew ? "Create the tenant" : "Save"}
        </button>
      </div>
    </form>
  );
}
