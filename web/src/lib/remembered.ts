import { useState } from "react";

/** useRemembered is useState for a choice that this browser stores. */
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
        // The choice lasts as long as the page.
      }
    },
  ];
}
