import { ask, type ServerError } from "../../lib/ask";
import { follow } from "../../lib/follow";
import { graphql, type ResultOf } from "../../lib/graphql";
import { OutcomeFragment } from "../../lib/outcome";
import { WriteStdinMutation } from "../execution/feed";
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
  query Printed($id: ID!, $after: Cursor) {
    execution(id: $id) {
      output(after: $after) {
        chunks {
          text
        }
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

export interface Watcher {
  onEnd: (end: End) => void;
  onError: (error: ServerError) => void;
}

const screens = "rockpool.screen.";

interface Saved {
  cursor: string;
  screen: string;
}

/** One terminal on the page: it shows what is printed, and sends what is typed. */
export class TerminalSession {
  readonly screen: Screen;
  private readonly id: string;
  private readonly watcher: Watcher;
  private readonly typist: Typist;
  private cursor: string | null = null;
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
      async (text, offset) => (await ask(WriteStdinMutation, { input: { executionId: id, text, offset: offset ?? null } })).writeStdin,
      (error) => {
        if (error.code !== "CONFLICT") watcher.onError(error);
      },
    );
    this.screen = new Screen((text) => {
      if (!this.over) this.typist.type(text);
    });
    this.screen.terminal.onResize(() => this.resized());
  }

  async open(host: HTMLElement) {
    this.screen.open(host);
    window.addEventListener("pagehide", this.save);
    this.resized();
    try {
      await this.catchUp();
    } catch (error) {
      if (!this.closed) this.watcher.onError(error as ServerError);
      return;
    }
    if (this.closed) return;
    this.stopFollowing = follow(EventsSubscription, {
      variables: () => ({ executionId: this.id, after: this.cursor }),
      next: ({ executionEvents: event }) => {
        this.cursor = event.cursor;
        if (event.__typename === "ExecutionOutput") this.screen.write(event.text, () => (this.drawn = event.cursor));
        if (event.__typename === "ExecutionOutputLost") this.screen.write(`\r\n\x1b[33m[${event.bytes} bytes are missing here]\x1b[0m\r\n`);
        if (event.__typename === "ExecutionFinished") {
          this.over = true;
          this.watcher.onEnd(event.execution);
        }
      },
      failed: (error) => this.watcher.onError(error),
    });
  }

  /** Draws what was printed before, beginning with what this tab had drawn. */
  private async catchUp() {
    const saved = this.saved();
    if (saved) {
      await this.screen.replay(saved.screen);
      this.cursor = this.drawn = saved.cursor;
    }
    while (!this.closed) {
      const { execution } = await ask(PrintedQuery, { id: this.id, after: this.cursor });
      if (!execution || execution.output.chunks.length === 0) return;
      for (const chunk of execution.output.chunks) await this.screen.replay(chunk.text);
      this.cursor = this.drawn = execution.output.cursor;
    }
  }

  private resized() {
    clearTimeout(this.resizing);
    this.resizing = setTimeout(() => {
      const { columns, rows } = this.screen.size;
      // What isn't on a terminal, or has ended, has no size.
      if (!this.over) ask(ResizeMutation, { input: { executionId: this.id, columns, rows } }).catch(() => {});
    }, 80);
  }

  private get key() {
    return screens + this.id;
  }

  private save = () => {
    if (!this.drawn) return;
    try {
      // A screen is large, and there is room for some: only the latest is kept.
      for (const key of Object.keys(sessionStorage)) if (key.startsWith(screens) && key !== this.key) sessionStorage.removeItem(key);
      sessionStorage.setItem(this.key, JSON.stringify({ cursor: this.drawn, screen: this.screen.save() } satisfies Saved));
    } catch {
      // Without room for it, the screen is drawn from the beginning.
    }
  };

  private saved(): Saved | undefined {
    try {
      return (JSON.parse(sessionStorage.getItem(this.key) ?? "null") as Saved | null) ?? undefined;
    } catch {
      return undefined;
    }
  }

  close() {
    this.save();
    this.closed = true;
    clearTimeout(this.resizing);
    window.removeEventListener("pagehide", this.save);
    this.stopFollowing?.();
    this.typist.stop();
    this.screen.dispose();
  }
}
