import { useState } from "react";
import { ask, ServerError } from "../../lib/ask";
import { useAction } from "../../lib/hooks";
import { inputOf, PutMutation, type Draft, type Parts, type WrongField } from "./draft";

/** A form's state: the draft, sending it, and which field is wrong. */
export function useDraft(initial: Draft, ifRevision: number) {
  const [draft, setDraft] = useState(initial);
  const [wrong, setWrong] = useState<WrongField>();
  const put = useAction(async (): Promise<Parts | undefined> => {
    setWrong(undefined);
    const input = inputOf(draft, ifRevision);
    if ("message" in input) {
      setWrong(input);
      return undefined;
    }
    try {
      return (await ask(PutMutation, { input })).putEnvironment.environment;
    } catch (error) {
      if (error instanceof ServerError && error.code === "INVALID_INPUT" && error.field !== "") {
        setWrong({ field: error.field.replace(/^input\./, ""), message: error.message });
        return undefined;
      }
      throw error;
    }
  });
  const change = (next: Draft) => {
    setDraft(next);
    setWrong(undefined);
  };
  return { draft, change, wrong, put };
}
