import type { TadaDocumentNode } from "gql.tada";
import { ServerError, serverError, textOf, type RawError } from "./request";
import { link as shared, type Link } from "./link";
import { session } from "./session";

/** Follower receives the events of a subscription. */
export interface Follower<Result, Variables> {
  /** Returns the variables of the next attempt, with the latest cursor. */
  variables: () => Variables;
  next: (data: Result) => void;
  /** Called when an attempt begins; `again` is true after a lost connection. */
  begin?: (again: boolean) => void;
  /** Called when the server completed the subscription. */
  end?: () => void;
  /** Called when the server refused the subscription with an error that retrying doesn't fix. */
  failed?: (error: ServerError) => void;
}

const firstDelay = 150;
const longestDelay = 3_000;
// The close codes of a connection whose token the server rejects.
export const unauthorized = [4401, 4403];

/**
 * follow follows a subscription until the returned function is called. After a lost connection or SLOW_CONSUMER it
 * subscribes again with the variables of that moment, so that it resumes at the latest cursor. The client library's
 * own retry would repeat the first variables.
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
    timer = undefined; // no other attempt may begin during this one
    if (stopped) return;
    follower.begin?.(failures > 0);
    let done = false; // of this attempt: a close can follow an error
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

  /**
   * refused decides what follows the server's errors: another attempt, a prompt for a token, or the
   * end.
   */
  const refused = (errors: readonly RawError[]) => {
    const error = serverError(errors);
    if (error.retryable || error.code === "SLOW_CONSUMER") again();
    else if (error.code === "UNAUTHENTICATED" && !session.hasGrant()) whenKnown();
    else fail(error);
  };

  const fail = (error: ServerError) => {
    stopped = true;
    follower.failed?.(error);
  };

  /** lost handles a closed connection. After a rejected token it waits for the user. */
  const lost = (closed: unknown) => {
    if (closed instanceof CloseEvent && unauthorized.includes(closed.code)) {
      if (session.hasGrant()) return fail(new ServerError(closed.reason || "the server rejected this grant", "UNAUTHENTICATED"));
      session.requireToken();
      whenKnown();
      return;
    }
    link.lost(follower);
    again();
  };

  /** whenKnown attempts again once the user has given a token or closed the prompt. */
  const whenKnown = () => {
    const ignore = session.listen(() => {
      if (session.tokenRequired()) return;
      ignore();
      attempt();
    });
  };

  /**
   * again plans the next attempt. Delays double, and vary so that clients don't return together.
   */
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
