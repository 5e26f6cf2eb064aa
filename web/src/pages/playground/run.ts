import type { ServerError } from "../../lib/ask";
import type { Program } from "./program";
import type { Turn } from "./waiting";

/** What a run asks of the server; each throws a ServerError. */
export interface Calls {
  claim: (environmentId: string) => Promise<{ runnerId: string | undefined; ticket: ({ id: string } & Turn) | undefined }>;
  /** Follows a ticket, until the function that it returns is called. */
  watch: (ticketId: string, on: { turn: (turn: Turn) => void; claimed: (runnerId: string) => void; failed: (error: ServerError) => void }) => () => void;
  /** Cancels a ticket, and returns the runner that it has got by then. */
  leave: (ticketId: string) => Promise<string | undefined>;
  write: (runnerId: string, program: Program) => Promise<void>;
  start: (runnerId: string, program: Program) => Promise<string>;
  /** Gives an execution all of its standard input, unless that ends before. */
  feed: (executionId: string, program: Program) => Promise<void>;
  cancel: (executionId: string) => Promise<void>;
  /** Waits for the end of an execution, for a while. */
  ended: (executionId: string) => Promise<void>;
  release: (runnerId: string) => Promise<void>;
}

/** Where a run is. It moves forward only; the last three are ends, of which "started" has the execution's own. `unfed`: why its input is incomplete. */
export type Phase =
  | { at: "preparing" }
  | { at: "waiting"; turn: Turn }
  | { at: "started"; executionId: string; runnerId: string; unfed?: ServerError }
  | { at: "stopped" }
  | { at: "failed"; error: ServerError };

/**
 * One run of a program: it claims a runner, writes the files and starts the command. It can be
 * stopped at any moment, and then leaves neither a claim nor a program behind.
 */
export class Run {
  private readonly calls: Calls;
  private readonly report: (phase: Phase) => void;
  private readonly stopping = new AbortController();
  private executionId: string | undefined;
  private runnerId: string | undefined;
  private released = false;

  constructor(calls: Calls, report: (phase: Phase) => void) {
    this.calls = calls;
    this.report = report;
  }

  /** Carries the run out, and returns once the program has started, or never will. */
  async begin(program: Program): Promise<void> {
    this.report({ at: "preparing" });
    try {
      const { runnerId, ticket } = await this.calls.claim(program.environment);
      this.runnerId = runnerId ?? (ticket && (await this.wait(ticket)));
      if (this.runnerId === undefined || this.left()) return await this.release();
      this.report({ at: "preparing" });
      await this.calls.write(this.runnerId, program);
      if (this.left()) return await this.release();
      this.executionId = await this.calls.start(this.runnerId, program);
      if (this.left()) return await this.end();
      const started = { at: "started", executionId: this.executionId, runnerId: this.runnerId } as const;
      this.report(started);
      this.calls.feed(this.executionId, program).catch((unfed: ServerError) => this.report({ ...started, unfed }));
    } catch (error) {
      if (!this.left()) this.report({ at: "failed", error: error as ServerError });
      await this.release().catch(() => {}); // it ends by its timeout
    }
  }

  /** Goes on with a run that began before the page was loaded. */
  resume(executionId: string, runnerId: string) {
    this.executionId = executionId;
    this.runnerId = runnerId;
    this.report({ at: "started", executionId, runnerId });
  }

  /** Whether its program has started. */
  get started(): boolean {
    return this.executionId !== undefined;
  }

  /** Stops it: a program that has started is cancelled, and any other one never starts. */
  async stop(): Promise<void> {
    if (this.executionId !== undefined) return this.end();
    if (this.left()) return;
    this.stopping.abort();
    this.report({ at: "stopped" });
  }

  /** Releases the runner, after the program has ended. */
  async release(): Promise<void> {
    if (this.runnerId === undefined || this.released) return;
    this.released = true;
    await this.calls.release(this.runnerId);
  }

  private async end() {
    await this.calls.cancel(this.executionId!);
    await this.calls.ended(this.executionId!); // else its outcome could be that of a runner that went
    await this.release();
  }

  private left(): boolean {
    return this.stopping.signal.aborted;
  }

  private wait({ id, ...turn }: { id: string } & Turn): Promise<string | undefined> {
    const { signal } = this.stopping;
    return new Promise((resolve, reject) => {
      const leave = () => {
        done();
        this.calls.leave(id).then(resolve, reject);
      };
      const unfollow = this.calls.watch(id, {
        turn: (turn) => this.report({ at: "waiting", turn }),
        claimed: (runnerId) => {
          done();
          resolve(runnerId);
        },
        failed: (error) => {
          done();
          reject(error);
        },
      });
      const done = () => {
        signal.removeEventListener("abort", leave);
        unfollow();
      };
      if (this.left()) return leave();
      this.report({ at: "waiting", turn });
      signal.addEventListener("abort", leave);
    });
  }
}
