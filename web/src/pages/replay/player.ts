import { happened, type Cast } from "./cast";

/** Where a recording is drawn. */
export interface Canvas {
  reset: () => void;
  write: (text: string) => void;
}

/** Plays a recording by a clock that somebody else drives. */
export class Player {
  /** Seconds into the recording. */
  position = 0;
  private readonly cast: Cast;
  private readonly canvas: Canvas;
  private drawn = 0; // events

  constructor(cast: Cast, canvas: Canvas) {
    this.cast = cast;
    this.canvas = canvas;
  }

  get ended(): boolean {
    return this.position >= this.cast.duration;
  }

  /** Goes to a moment; backwards it draws all of it again. */
  seek(position: number) {
    this.position = Math.min(this.cast.duration, Math.max(0, position));
    const until = happened(this.cast.events, this.position);
    if (until < this.drawn) {
      this.canvas.reset();
      this.drawn = 0;
    }
    if (until === this.drawn) return;
    const texts = this.cast.events.slice(this.drawn, until).map((event) => event.text);
    this.drawn = until;
    this.canvas.write(texts.join(""));
  }

  /** Lets time pass. */
  advance(seconds: number) {
    this.seek(this.position + seconds);
  }
}
