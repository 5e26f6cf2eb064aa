import { useState } from "react";
import { request, ServerError } from "../../lib/request";
import { useAction } from "../../lib/hooks";
import { inputOf, PutMutation, type Draft, type Parts, type WrongField } from "./draft";
import { misfits, type Machine } from "./machine";

/** silence is the time in ms without a response from an image's registry after which the form says so. */
export const silence = 2_000;

/** useDraft is a form's state: the draft, its saving, the wrong fields, and the image with a silent registry. */
export function useDraft(initial: Draft, ifRevision: number, machine: Machine) {
  const [draft, setDraft] = useState(initial);
  const [refused, setRefused] = useState<WrongField>();
  const [silent, setSilent] = useState("");
  const tooMuch = misfits(draft, machine);
  const put = useAction(async (): Promise<Parts | undefined> => {
    setRefused(undefined);
    const input = inputOf(draft, ifRevision);
    if ("message" in input) {
      setRefused(input);
      return undefined;
    }
    if (tooMuch[0]) {
      setRefused({ ...tooMuch[0] });
      return undefined;
    }
    const image = input.image ?? "";
    const timer = image === "host" || image.startsWith("file:") ? undefined : setTimeout(() => setSilent(image), silence);
    try {
      return (await request(PutMutation, { input })).putEnvironment.environment;
    } catch (error) {
      if (error instanceof ServerError && error.code === "INVALID_INPUT" && error.field !== "") {
        setRefused({ field: error.field.replace(/^input\./, ""), message: error.message });
        return undefined;
      }
      throw error;
    } finally {
      clearTimeout(timer);
      setSilent("");
    }
  });
  const change = (next: Draft) => {
    setDraft(next);
    setRefused(undefined);
  };
  const wrong = refused ? [refused, ...tooMuch.filter(({ field }) => field !== refused.field)] : tooMuch;
  return { draft, change, wrong, refused, put, silent };
}
