import { createClient, type Client } from "graphql-ws";
import { credentials } from "./session";

/** LinkState is the state of the connection that subscriptions share. */
export type LinkState = "idle" | "open" | "lost";

/**
 * pingEvery and pongWithin are in milliseconds. A server that doesn't answer in time counts as
 * lost.
 */
const pingEvery = 10_000;
const pongWithin = 8_000;

/** Link is the WebSocket that all subscriptions share. It never reconnects on its own: follow does. */
export class Link {
  readonly client: Client;
  private state: LinkState = "idle";
  private readonly listeners = new Set<() => void>();
  /** The followers that reconnect. When the last one leaves, the state "lost" ends. */
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
        // A broken network doesn't close connections.
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

  /** lost records that a subscription lost its connection and will reconnect. */
  lost(follower: object) {
    this.losers.add(follower);
    this.become("lost");
  }

  /** left records that the subscription no longer reconnects. */
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

/** linkURL returns the WebSocket address of the API on the page's own server. */
export function linkURL(location: Location): string {
  return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/graphql`;
}

/** link is the connection of this page. */
export const link = new Link(linkURL(window.location));
