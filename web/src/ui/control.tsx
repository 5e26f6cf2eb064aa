import { useState } from "react";
import { request, ServerError } from "../lib/request";
import { commandText } from "../lib/format";
import { graphql } from "../lib/graphql";
import { useAction } from "../lib/hooks";
import { Dialog, Failure } from "./parts";

const CancelMutation = graphql(`
  mutation CancelExecution($id: ID!) {
    cancelExecution(id: $id) {
      execution {
        state
        outcome
      }
    }
  }
`);

/** cancelOne cancels an execution; it returns "ended" if it had already ended or is no longer kept. */
export async function cancelOne(id: string): Promise<"done" | "ended"> {
  try {
    const { state, outcome } = (await request(CancelMutation, { id })).cancelExecution.execution;
    return state === "FINISHED" && outcome !== "CANCELLED" ? "ended" : "done";
  } catch (error) {
    if (error instanceof ServerError && error.code === "EXECUTION_NOT_FOUND") return "ended";
    throw error;
  }
}

const SignalMutation = graphql(`
  mutation SignalExecution($input: SignalExecutionInput!) {
    signalExecution(input: $input) {
      execution {
        state
      }
    }
  }
`);

const signals = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL"];

/** signal sends a signal. It ignores CONFLICT: the page shows the state of an execution that has ended. */
export async function signal(executionId: string, name: string) {
  try {
    await request(SignalMutation, { input: { executionId, signal: name } });
  } catch (error) {
    if (!(error instanceof ServerError && error.code === "CONFLICT")) throw error;
  }
}

/** SignalChoice chooses one of the signals that the API can send. */
export function SignalChoice({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <label>
      <span className="hidden-text">Signal</span>
      <select className="select fit" value={value} onChange={(event) => onChange(event.target.value)}>
        {signals.map((name) => (
          <option key={name} value={name}>
            SIG{name}
          </option>
        ))}
      </select>
    </label>
  );
}

export interface ControlProps {
  /** The execution to act on; undefined closes the dialog. */
  execution: { id: string; commandLine: string } | undefined;
  onClose: () => void;
  onDone?: () => void;
}

/** SignalDialog asks for a signal and sends it. */
export function SignalDialog({ execution, onClose, onDone }: ControlProps) {
  const [name, setName] = useState("INT");
  const send = useAction(async (id: string) => {
    await signal(id, name);
    onDone?.();
    onClose();
  });
  const close = () => {
    send.clear();
    onClose();
  };
  return (
    <Dialog title="Send a signal" open={execution !== undefined} onClose={close}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (execution) void send.run(execution.id);
        }}
      >
        <p className="break">
          The signal goes to <span className="mono">{execution && commandText(execution.commandLine)}</span> and its process group. A program can handle or ignore every signal except SIGKILL and SIGSTOP.
        </p>
        <SignalChoice value={name} onChange={setName} />
        <Failure error={send.error} />
        <div className="row">
          <button type="button" className="button" onClick={close}>
            Close
          </button>
          <button type="submit" className="button primary" disabled={send.busy}>
            Send
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** CancelDialog cancels an execution after a confirmation. */
export function CancelDialog({ execution, onClose, onDone }: ControlProps) {
  const cancel = useAction(async (id: string) => {
    await request(CancelMutation, { id });
    onDone?.();
    onClose();
  });
  const close = () => {
    cancel.clear();
    onClose();
  };
  return (
    <Dialog title="Cancel this execution?" open={execution !== undefined} onClose={close}>
      <p className="break">
        This ends <span className="mono">{execution && commandText(execution.commandLine)}</span> and every process that it started. Its output is kept.
      </p>
      <Failure error={cancel.error} />
      <div className="row">
        <button type="button" className="button" onClick={close}>
          Let it run
        </button>
        <button type="button" className="button danger" disabled={cancel.busy} onClick={() => execution && void cancel.run(execution.id)}>
          Cancel it
        </button>
      </div>
    </Dialog>
  );
}
