import { useId, useRef, useState } from "react";

export interface CopyProps {
  label: string;
  text: string;
  hint?: string;
}

/** Copy shows a text with a button that copies it, such as a link or a secret. */
export function Copy({ label, text, hint }: CopyProps) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid("Copied");
    } catch {
      // Without TLS browsers have no clipboard API, or they refused.
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
