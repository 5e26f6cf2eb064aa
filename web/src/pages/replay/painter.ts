import type { Size } from "./cast";
import type { Canvas } from "./player";

/** Easel is a screen that draws text asynchronously, with a callback, and does everything else immediately. */
export interface Easel {
  reset: () => void;
  resize: (size: Size) => void;
  write: (text: string, done: () => void) => void;
}

/** Step is a text or a size that isn't drawn yet. */
type Step = { text: string } | { size: Size; reset: boolean };

// Characters in one write. A seek waits for at most one write.
const piece = 1 << 16;

/** Painter draws texts and sizes in order. A reset drops the pending ones. */
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
    this.add({ size, reset: true });
  }

  resize(size: Size) {
    this.add({ size, reset: false });
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
        if (step.reset) this.easel.reset();
        this.easel.resize(step.size);
      }
    }
  }
}
