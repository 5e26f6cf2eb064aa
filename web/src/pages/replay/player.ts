import { eventsUntil, type Cast, type Size } from "./cast";

/** Canvas draws a recording in the order of the calls. */
export interface Canvas {
  /** Clears the canvas and sets its size. */
  reset: (size: Size) => void;
  resize: (size: Size) => void;
  write: (text: string) => void;
}

/** Player plays a recording. Its owner drives the clock with advance and seek. */
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

  /** Goes to a position; going backwards redraws from the beginning. */
  seek(position: number) {
    this.position = Math.min(this.cast.duration, Math.max(0, position));
    const until = eventsUntil(this.cast.events, this.position);
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

  /** Advances the position. */
  advance(seconds: number) {
    this.seek(this.position + seconds);
  }
}
