import type { ServerError } from "../../lib/request";
import type { Program } from "./program";
import type { Turn } from "./waiting";

/** Calls are a run's requests to the server; each throws a ServerError. */
export interface Calls {
  claim: (environmentId: string) => Promise<{ runnerId: string | undefined; ticket: ({ id: string } & Turn) | undefined }>;
  /** Follows a ticket until the returned function is called. */
  watch: (ticketId: string, on: { turn: (turn: Turn) => void; claimed: (runnerId: string) => void; failed: (error: ServerError) => void }) => () => void;
  /** Cancels a ticket; returns its runner if it was claimed before. */
  leave: (ticketId: string) => Promise<string | undefined>;
  write: (runnerId: string, program: Program) => Promise<void>;
  start: (runnerId: string, program: Program) => Promise<string>;
  /** Writes an execution's whole standard input, unless the execution ends before. */
  feed: (executionId: string, program: Program) => Promise<void>;
  cancel: (executionId: string) => Promise<void>;
  /** Waits for the end of an execution, for at most 30 s. */
  ended: (executionId: string) => Promise<void>;
  release: (runnerId: string) => Promise<void>;
}

/**
 * Phase is the state of a run, which only moves forward. The last three are final; after "started" the execution has
 * its own state. `unfed` says why its input is incomplete.
 */
export type Phase =
  | { at: "preparing" }
  | { at: "waiting"; turn: Turn }
  | { at: "started"; executionId: string; runnerId: string; unfed?: ServerError }
  | { at: "stopped" }
  | { at: "failed"; error: ServerError };

/**
 * Run is one run of a program: it claims a runner, writes the files and starts the command. stop ends it at any moment,
 * and then neither a claim nor a program stays behind.
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

  /** Runs the program; it returns when the program has started or won't start. */
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
      await this.release().catch(() => {}); // the runner ends by its inactivity timeout
    }
  }

  /** Continues a run that began before the page was loaded. */
  resume(executionId: string, runnerId: string) {
    this.executionId = executionId;
    this.runnerId = runnerId;
    this.report({ at: "started", executionId, runnerId });
  }

  /** Whether the program has started. */
  get started(): boolean {
    return this.executionId !== undefined;
  }

  /** Stops the run: it cancels a started program, and doesn't start another. */
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

  /** Cancels the program, waits for its end, and releases the runner. */
  private async end() {
    await this.calls.cancel(this.executionId!);
    await this.calls.ended(this.executionId!); // otherwise the outcome could be RUNNER_GONE
    await this.release();
  }

  /** Whether stop was called before the program had started. */
  private left(): boolean {
    return this.stopping.signal.aborted;
  }

  /** Waits for a ticket's runner. After a stop it cancels the ticket. */
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
