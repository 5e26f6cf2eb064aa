import { draftKey, store } from "../../lib/store";
import { untouched } from "./presets";
import { programFrom, same, type Program } from "./program";

/** What is written, and the programs that something else took the place of. */
export interface Draft {
  program: Program;
  /** The latest is the last. */
  kept: Program[];
}

const mostKept = 5;
const largest = 1_000_000; // characters: GraphiQL and the token need room, too
const pause = 300;

/** The draft of this tab, or else the last one of this browser. */
export function load(): Draft | undefined {
  return read(sessionStorage) ?? read(localStorage);
}

/** Keeps a draft for as long as the browser does; it returns whether that worked. */
export function save(draft: Draft): boolean {
  const text = JSON.stringify(draft);
  return text.length <= largest && [sessionStorage, localStorage].every((storage) => store(storage, draftKey, text));
}

/** Saves the latest of many drafts, once there was no other for a moment. */
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

  /** Saves what waits at once. */
  flush = () => {
    if (!this.waiting) return;
    clearTimeout(this.timer);
    this.saved(save(this.waiting));
    this.waiting = undefined;
  };
}

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

/** Another program takes the place of the one that is there, which is kept if anybody wrote it. */
export function opened(draft: Draft | undefined, program: Program): Draft {
  if (!draft) return { program, kept: [] };
  const kept = draft.kept.filter((one) => !same(one, program) && !same(one, draft.program));
  if (!untouched(draft.program) && !same(draft.program, program)) kept.push(draft.program);
  return { program, kept: kept.slice(-mostKept) };
}

/** Goes back to the program that was kept last; the one that is there is kept behind the others. */
export function back({ program, kept }: Draft): Draft {
  const last = kept.at(-1);
  if (!last) return { program, kept };
  const others = kept.slice(0, -1);
  return { program: last, kept: untouched(program) ? others : [program, ...others] };
}
