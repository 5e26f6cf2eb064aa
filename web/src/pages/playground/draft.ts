import { draftKey, store } from "../../lib/store";
import { untouched } from "./presets";
import { programFrom, same, type Program } from "./program";

/** Draft is the edited program, and the programs that it replaced. */
export interface Draft {
  program: Program;
  /** Replaced programs, newest last; at most 5. */
  kept: Program[];
}

const mostKept = 5;
const largest = 1_000_000; // characters: GraphiQL and the token use the same storage
const pause = 300;

/** load returns the draft of this tab, or else the last one of this browser. */
export function load(): Draft | undefined {
  return read(sessionStorage) ?? read(localStorage);
}

/** save stores a draft in this browser; it returns whether that worked. */
export function save(draft: Draft): boolean {
  const text = JSON.stringify(draft);
  return text.length <= largest && [sessionStorage, localStorage].every((storage) => store(storage, draftKey, text));
}

/** Saver saves the latest draft after 300 ms without a change. */
export class Saver {
  private waiting: Draft | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly saved: (kept: boolean) => void;

  constructor(saved: (kept: boolean) => void) {
    this.saved = saved;
  }

  save(draft: Draft) {
    this.waiting = draft;
    clearTimeout(this.timer);
    this.timer = setTimeout(this.flush, pause);
  }

  /** Saves a pending draft immediately. */
  flush = () => {
    if (!this.waiting) return;
    clearTimeout(this.timer);
    this.saved(save(this.waiting));
    this.waiting = undefined;
  };
}

/** read returns a stored draft; undefined if there is none or it is invalid. */
function read(storage: Storage): Draft | undefined {
  try {
    const value: unknown = JSON.parse(storage.getItem(draftKey) ?? "null");
    if (typeof value !== "object" || value === null) return undefined;
    const { program, kept } = value as Record<string, unknown>;
    const found = programFrom(program);
    if (!found) return undefined;
    return { program: found, kept: Array.isArray(kept) ? kept.map(programFrom).filter((one) => one !== undefined) : [] };
  } catch {
    return undefined;
  }
}

/** opened replaces the program with another one. It keeps the replaced one, unless that is an unchanged sample. */
export function opened(draft: Draft | undefined, program: Program): Draft {
  if (!draft) return { program, kept: [] };
  const kept = draft.kept.filter((one) => !same(one, program) && !same(one, draft.program));
  if (!untouched(draft.program) && !same(draft.program, program)) kept.push(draft.program);
  return { program, kept: kept.slice(-mostKept) };
}

/** back restores the program that was replaced last. The current one becomes the oldest of the kept ones. */
export function back({ program, kept }: Draft): Draft {
  const last = kept.at(-1);
  if (!last) return { program, kept };
  const others = kept.slice(0, -1);
  return { program: last, kept: untouched(program) ? others : [program, ...others] };
}
