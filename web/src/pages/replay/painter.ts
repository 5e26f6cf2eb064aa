import type { Size } from "./cast";
import type { Canvas } from "./player";

/** A screen, which takes in text later, and tells when, but everything else at once. */
export interface Easel {
  reset: () => void;
  resize: (size: Size) => void;
  write: (text: string, done: () => void) => void;
}

type Step = { text: string } | { size: Size; anew: boolean };

// So much is on its way to the screen at once: what was sought meanwhile waits
// for no more.
const piece = 1 << 16;

/** Draws text and sizes in their order, and nothing more of what came before a reset. */
export class Painter implements Canvas {
  private readonly easel: Easel;
  private steps: Step[] = [];
  private writing = false;
  private stopped = false;

  constructor(easel: Easel) {
    this.easel = easel;
  }

  reset(size: Size) {
    this.steps = [];
    this.add({ size, anew: true });
  }

  resize(size: Size) {
    this.add({ size, anew: false });
  }

  write(text: string) {
    for (let from = 0; from < text.length; from += piece) this.steps.push({ text: text.slice(from, from + piece) });
    this.go();
  }

  stop() {
    this.stopped = true;
  }

  private add(step: Step) {
    this.steps.push(step);
    this.go();
  }

  private go() {
    while (!this.writing && !this.stopped) {
      const step = this.steps.shift();
      if (!step) return;
      if ("text" in step) {
        this.writing = true;
        this.easel.write(step.text, () => {
          this.writing = false;
          this.go();
        });
      } else {
        if (step.anew) this.easel.reset();
        this.easel.resize(step.size);
      }
    }
  }
}
