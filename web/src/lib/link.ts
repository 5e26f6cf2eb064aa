import { createClient, type Client } from "graphql-ws";
import { credentials } from "./session";

/** How the connection is that subscriptions use. */
export type LinkState = "idle" | "open" | "lost";

const pingEvery = 10_000;
const pongWithin = 8_000;

/** One WebSocket that all subscriptions share. It never retries by itself: see follow. */
export class Link {
  readonly client: Client;
  private state: LinkState = "idle";
  private readonly listeners = new Set<() => void>();
  /** Who tries again; with the last of them goes the word of it. */
  private readonly losers = new Set<object>();

  constructor(url: string) {
    let pong: ReturnType<typeof setTimeout> | undefined;
    this.client = createClient({
      url,
      lazy: true,
      lazyCloseTimeout: 3_000,
      retryAttempts: 0,
      connectionParams: credentials,
      keepAlive: pingEvery,
      onNonLazyError: () => {},
      on: {
        connected: () => {
          this.losers.clear();
          this.become("open");
        },
        // A network that is gone doesn't say so.
        ping: (received) => {
          if (!received) pong = setTimeout(() => this.client.terminate(), pongWithin);
        },
        pong: (received) => {
          if (received) clearTimeout(pong);
        },
        closed: () => {
          clearTimeout(pong);
          if (this.state === "open") this.become("idle");
        },
      },
    });
  }

  /** A subscription lost its connection, and will try again. */
  lost(follower: object) {
    this.losers.add(follower);
    this.become("lost");
  }

  /** It doesn't want to any more. */
  left(follower: object) {
    if (this.losers.delete(follower) && this.losers.size === 0) this.become("idle");
  }

  current = (): LinkState => this.state;

  listen = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private become(state: LinkState) {
    if (state === this.state) return;
    this.state = state;
    for (const listener of this.listeners) listener();
  }
}

export function linkURL(location: Location): string {
  return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/graphql`;
}

export const link = new Link(linkURL(window.location));
