import { FitAddon } from "@xterm/addon-fit";
import { SerializeAddon } from "@xterm/addon-serialize";
import { Terminal, type ITheme } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { withoutInlineStyles } from "./styles";

const theme: ITheme = { background: "#0c1113", foreground: "#e3e9e8", cursor: "#64c4cc", selectionBackground: "#1f5961" };

// OSC codes for titles, links, colours and the clipboard. A program's output must have no effect outside the screen.
const refused = [0, 1, 2, 8, 9, 52, 133, 777, 1337];

/** Screen is a terminal's screen on which programs can only draw. */
export class Screen {
  readonly terminal: Terminal;
  private readonly fitter = new FitAddon();
  private readonly serializer = new SerializeAddon();
  private readonly restore = withoutInlineStyles();
  private muted = 0;

  constructor(onData: (text: string) => void) {
    this.terminal = new Terminal({
      fontFamily: 'ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
      fontSize: 13,
      scrollback: 5_000,
      theme,
      minimumContrastRatio: 4.5,
      screenReaderMode: false,
      linkHandler: { activate: () => {} },
    });
    for (const code of refused) this.terminal.parser.registerOscHandler(code, () => true);
    this.terminal.loadAddon(this.fitter);
    this.terminal.loadAddon(this.serializer);
    let pressed = "";
    this.terminal.onKey(({ key }) => (pressed = key)); // onData follows with the same text
    this.terminal.onData((text) => {
      const typed = text === pressed;
      pressed = "";
      if (typed || this.muted === 0) onData(text);
    });
    this.terminal.attachCustomKeyEventHandler((event) => {
      if (event.type !== "keydown" || !event.ctrlKey || !event.shiftKey || event.code !== "KeyC") return true;
      navigator.clipboard?.writeText(this.terminal.getSelection()).catch(() => {}); // browsers have no clipboard API without TLS
      event.preventDefault();
      return false;
    });
  }

  /** Shows the screen in an element, with its own size or, if `fits`, the element's. */
  open(host: HTMLElement, fits = true) {
    this.terminal.open(host);
    if (fits) this.fit();
  }

  fit() {
    this.fitter.fit();
  }

  get size(): { columns: number; rows: number } {
    return { columns: this.terminal.cols, rows: this.terminal.rows };
  }

  write(text: string, done?: () => void) {
    this.terminal.write(text, done);
  }

  /** Draws earlier output without answering its terminal queries again. Typed keys are still sent. */
  replay(text: string): Promise<void> {
    this.muted++;
    return new Promise((resolve) =>
      this.terminal.write(text, () => {
        this.muted--;
        resolve();
      }),
    );
  }

  /** Returns a text that restores the screen with replay. */
  save(): string {
    return this.serializer.serialize({ scrollback: 1_000 });
  }

  dispose() {
    this.terminal.dispose();
    this.restore();
  }
}

