import { happened, type Cast, type Size } from "./cast";

/** Where a recording is drawn, in the order of the calls. */
export interface Canvas {
  /** Begins anew: empty, and of that size. */
  reset: (size: Size) => void;
  resize: (size: Size) => void;
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
      this.canvas.reset(this.cast);
      this.drawn = 0;
    }
    let text = "";
    const write = () => {
      if (text !== "") this.canvas.write(text);
      text = "";
    };
    for (const event of this.cast.events.slice(this.drawn, until)) {
      if ("text" in event) text += event.text;
      else {
        write();
        this.canvas.resize(event);
      }
    }
    write();
    this.drawn = until;
  }

  /** Lets time pass. */
  advance(seconds: number) {
    this.seek(this.position + seconds);
  }
}
