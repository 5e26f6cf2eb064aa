import { useId, useRef, useState } from "react";

export interface CopyProps {
  label: string;
  text: string;
  hint?: string;
}

/** A text to be copied: a link, or a secret that is shown once. */
export function Copy({ label, text, hint }: CopyProps) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied");
    } catch {
      // Without TLS there is no clipboard, or it was refused.
      input.current?.select();
      setSaid("Selected: copy it with Ctrl-C");
    }
  };
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <div className="with-unit">
        <input ref={input} id={id} className="input mono" readOnly value={text} spellCheck={false} onFocus={(event) => event.currentTarget.select()} />
        <button type="button" className="button" onClick={() => void copy()}>
          Copy
        </button>
      </div>
      <span className="hint" role="status">
        {said || hint}
      </span>
    </div>
  );
}
