import { useState } from "react";

/** A choice that this browser remembers. */
export function useRemembered(name: string, otherwise: boolean): [boolean, (value: boolean) => void] {
  const key = `rockpool.${name}`;
  const [value, setValue] = useState(() => {
    try {
      const kept = localStorage.getItem(key);
      return kept === null ? otherwise : kept === "true";
    } catch {
      return otherwise; // a browser may have no storage
    }
  });
  return [
    value,
    (next) => {
      setValue(next);
      try {
        localStorage.setItem(key, String(next));
      } catch {
        // It holds for this page.
      }
    },
  ];
}
