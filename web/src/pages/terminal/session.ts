import { request, type ServerError } from "../../lib/request";
import { follow } from "../../lib/follow";
import { graphql, type ResultOf } from "../../lib/graphql";
import { type LossCause, missing } from "../../lib/loss";
import { OutcomeFragment } from "../../lib/outcome";
import { WriteStdinMutation } from "../execution/feed";
import { Backlog, type Printed } from "./backlog";
import { Screen } from "./screen";
import { Typist } from "./stdin";

const EventsSubscription = graphql(
  `
    subscription TerminalEvents($executionId: ID!, $after: Cursor) {
      executionEvents(executionId: $executionId, after: $after) {
        __typename
        cursor
        ... on ExecutionOutput {
          text
        }
        ... on ExecutionOutputLost {
          bytes
          cause
        }
        ... on ExecutionFinished {
          execution {
            ...OutcomeParts
          }
        }
      }
    }
  `,
  [OutcomeFragment],
);
export type End = Extract<ResultOf<typeof EventsSubscription>["executionEvents"], { __typename: "ExecutionFinished" }>["execution"];

const PrintedQuery = graphql(`
  query Printed($id: ID!, $after: Cursor, $maxBytes: Int!, $text: Boolean!) {
    execution(id: $id) {
      output(after: $after, maxBytes: $maxBytes) {
        chunks {
          __typename
          text @include(if: $text)
        }
        lostBytes
        lostCause
        cursor
      }
    }
  }
`);

const ResizeMutation = graphql(`
  mutation ResizeTerminal($input: ResizeTerminalInput!) {
    resizeTerminal(input: $input) {
      execution {
        id
      }
    }
  }
`);

/** Watcher receives the end of the execution, and errors that retrying doesn't fix. */
export interface Watcher {
  onEnd: (end: End) => void;
  onError: (error: ServerError) => void;
}

/** screens begins the storage keys of saved screens. The execution's id follows. */
const screens = "rockpool.screen.";

// Characters that may wait for the screen. Beyond that the session requests no more output until they are drawn.
const mostWaiting = 1 << 19;
const retryAfter = 500; // ms: the server may be restarting

/** Saved is a screen in the tab's storage, with the cursor of the output that it shows. */
interface Saved {
  cursor: string;
  screen: string;
}

/** TerminalSession connects a screen to an execution: it draws the output and sends typed keys. */
export class TerminalSession {
  readonly screen: Screen;
  private readonly id: string;
  private readonly watcher: Watcher;
  private readonly typist: Typist;
  private readonly backlog: Backlog;
  private waiting = 0;
  private behind = false;
  /** The cursor after what the screen has drawn. */
  private drawn: string | null = null;
  private stopFollowing: (() => void) | undefined;
  private closed = false;
  private over = false;
  private resizing: ReturnType<typeof setTimeout> | undefined;

  constructor(id: string, watcher: Watcher) {
    this.id = id;
    this.watcher = watcher;
    this.typist = new Typist(
      async (text, offset) => (await request(WriteStdinMutation, { input: { executionId: id, text, offset: offset ?? null } })).writeStdin,
      (error) => {
        if (error.code !== "CONFLICT") watcher.onError(error);
      },
    );
    this.screen = new Screen((text) => {
      if (!this.over) this.typist.type(text);
    });
    this.screen.terminal.onResize(() => this.resized());
    // A key press skips the backlog, so that its effect shows soon.
    this.screen.terminal.onKey(() => {
      if (this.behind) this.backlog.skipToEnd();
    });
    this.backlog = new Backlog((after, maxBytes, text) => this.printed(after, maxBytes, text));
  }

  /** Shows the screen in an element, restores a saved one, and then draws newer output. */
  async open(host: HTMLElement) {
    this.screen.open(host);
    window.addEventListener("pagehide", this.save);
    this.resized();
    const saved = this.saved();
    if (saved) {
      await this.screen.replay(saved.screen);
      this.backlog.cursor = this.drawn = saved.cursor;
    }
    // Terminal queries in earlier output were answered before.
    await this.catchUp((text) => this.screen.replay(text));
  }

  /** Draws the server's output at the screen's pace, and then follows it. */
  private async catchUp(draw: (text: string) => Promise<void>) {
    this.behind = true;
    try {
      await this.backlog.drain(
        draw,
        (bytes, cause) => this.missing(bytes, cause),
        () => this.note("output was skipped here"),
      );
    } catch (error) {
      if (!this.closed) this.watcher.onError(error as ServerError);
      return;
    }
    this.behind = false;
    this.drawn = this.backlog.cursor;
    if (!this.closed) this.follow();
  }

  /** Draws new output as it arrives. */
  private follow() {
    this.stopFollowing = follow(EventsSubscription, {
      variables: () => ({ executionId: this.id, after: this.backlog.cursor }),
      next: ({ executionEvents: event }) => {
        if (this.behind) return; // catchUp fetches it again
        this.backlog.cursor = event.cursor;
        if (event.__typename === "ExecutionOutput") this.show(event.text, event.cursor);
        if (event.__typename === "ExecutionOutputLost") this.missing(event.bytes, event.cause);
        if (event.__typename === "ExecutionFinished") {
          this.over = true;
          this.watcher.onEnd(event.execution);
        }
      },
      failed: (error) => this.watcher.onError(error),
    });
  }

  /**
   * Draws output. If too much waits for the screen, it stops following until all of it is drawn.
   */
  private show(text: string, cursor: string) {
    this.waiting += text.length;
    if (this.waiting > mostWaiting) {
      this.behind = true;
      this.stopFollowing?.();
    }
    this.screen.write(text, () => {
      this.waiting -= text.length;
      this.drawn = cursor;
      if (this.behind && this.waiting === 0 && !this.closed) void this.catchUp((more) => new Promise((drawn) => this.screen.write(more, drawn)));
    });
  }

  /** Queries output after a cursor. It retries temporary errors until the session is closed. */
  private async printed(after: string | null, maxBytes: number, text: boolean): Promise<Printed | undefined> {
    for (;;) {
      try {
        const { execution } = await request(PrintedQuery, { id: this.id, after, maxBytes, text });
        return execution?.output;
      } catch (error) {
        if (!(error as ServerError).retryable || this.closed) throw error;
        await new Promise((resolve) => setTimeout(resolve, retryAfter));
      }
    }
  }

  private missing(bytes: number, cause: LossCause) {
    this.note(missing(bytes, cause));
  }

  /** Writes a remark of the dashboard to the screen, on a line of its own. */
  private note(text: string) {
    this.screen.write(`\r\n\x1b[0;33m[${text}]\x1b[0m\r\n`);
  }

  /** Reports the screen's size to the program, once it hasn't changed for 80 ms. */
  private resized() {
    clearTimeout(this.resizing);
    this.resizing = setTimeout(() => {
      const { columns, rows } = this.screen.size;
      // Executions without a terminal or that have ended refuse a size.
      if (!this.over) request(ResizeMutation, { input: { executionId: this.id, columns, rows } }).catch(() => {});
    }, 80);
  }

  private get key() {
    return screens + this.id;
  }

  /** Stores the screen for a reload of the page. */
  private save = () => {
    if (!this.drawn) return;
    try {
      // Screens are large and storage is limited, so only the latest is kept.
      for (const key of Object.keys(sessionStorage)) if (key.startsWith(screens) && key !== this.key) sessionStorage.removeItem(key);
      sessionStorage.setItem(this.key, JSON.stringify({ cursor: this.drawn, screen: this.screen.save() } satisfies Saved));
    } catch {
      // Without storage the screen is drawn from the beginning.
    }
  };

  private saved(): Saved | undefined {
    try {
      return (JSON.parse(sessionStorage.getItem(this.key) ?? "null") as Saved | null) ?? undefined;
    } catch {
      return undefined;
    }
  }

  /** Saves the screen and ends the session. The execution continues. */
  close() {
    this.save();
    this.closed = true;
    this.backlog.stop();
    clearTimeout(this.resizing);
    window.removeEventListener("pagehide", this.save);
    this.stopFollowing?.();
    this.typist.stop();
    this.screen.dispose();
  }
}
