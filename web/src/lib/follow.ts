import type { TadaDocumentNode } from "gql.tada";
import { ServerError, serverError, textOf, type RawError } from "./ask";
import { link as shared, type Link } from "./link";
import { session } from "./session";

export interface Follower<Result, Variables> {
  /** The variables of the next attempt: a cursor that moved is in them. */
  variables: () => Variables;
  next: (data: Result) => void;
  /** An attempt begins, after the connection was lost if `again`. */
  begin?: (again: boolean) => void;
  /** The subscription came to its own end. */
  end?: () => void;
  /** The server refused it for good. */
  failed?: (error: ServerError) => void;
}

const firstDelay = 150;
const longestDelay = 3_000;
// What the server closes a connection with that it doesn't know.
export const unauthorized = [4401, 4403];

/**
 * Follows a subscription until the function that it returns is called. When
 * the connection is lost it subscribes again, with the variables as they are by
 * then: the client library would repeat the first ones.
 */
export function follow<Result, Variables>(
  document: TadaDocumentNode<Result, Variables>,
  follower: Follower<Result, Variables>,
  link: Link = shared,
): () => void {
  let stopped = false;
  let failures = 0;
  let release: (() => void) | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const attempt = () => {
    clearTimeout(timer);
    timer = undefined; // none is to begin another one while this one lasts
    if (stopped) return;
    follower.begin?.(failures > 0);
    let done = false; // this attempt: an error may come with a close after it
    const payload = { query: textOf(document), variables: follower.variables() as Record<string, unknown> };
    release = link.client.subscribe<Result>(payload, {
      next: (result) => {
        if (done || stopped) return;
        if (result.errors && result.errors.length > 0) {
          done = true;
          refused(result.errors);
        } else if (result.data != null) {
          failures = 0;
          follower.next(result.data);
        }
      },
      error: (error) => {
        if (done || stopped) return;
        done = true;
        if (Array.isArray(error)) refused(error as RawError[]);
        else lost(error);
      },
      complete: () => {
        if (done || stopped) return;
        done = true;
        stopped = true;
        follower.end?.();
      },
    });
  };

  const refused = (errors: readonly RawError[]) => {
    const error = serverError(errors);
    if (error.retryable || error.code === "SLOW_CONSUMER") again();
    else if (error.code === "UNAUTHENTICATED" && !session.borrows()) whenKnown();
    else fail(error);
  };

  const fail = (error: ServerError) => {
    stopped = true;
    follower.failed?.(error);
  };

  const lost = (closed: unknown) => {
    if (closed instanceof CloseEvent && unauthorized.includes(closed.code)) {
      if (session.borrows()) return fail(new ServerError(closed.reason || "the server doesn't take this grant", "UNAUTHENTICATED"));
      session.want();
      whenKnown();
      return;
    }
    link.lost(follower);
    again();
  };

  const whenKnown = () => {
    const ignore = session.listen(() => {
      if (session.wanted()) return;
      ignore();
      attempt();
    });
  };

  const again = () => {
    const delay = Math.min(longestDelay, firstDelay * 2 ** failures++) * (0.75 + Math.random() / 2);
    timer = setTimeout(attempt, delay);
  };

  const online = () => {
    if (timer !== undefined && link.current() === "lost") attempt();
  };
  window.addEventListener("online", online);
  attempt();
  return () => {
    stopped = true;
    clearTimeout(timer);
    window.removeEventListener("online", online);
    link.left(follower);
    release?.();
  };
}
