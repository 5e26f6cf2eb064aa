import { useState } from "react";
import { ask, ServerError } from "../lib/ask";
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

/** Cancels an execution, or says that it had ended. */
export async function cancelOne(id: string): Promise<"done" | "ended"> {
  try {
    const { state, outcome } = (await ask(CancelMutation, { id })).cancelExecution.execution;
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

/** Sends a signal; that it had ended before is shown by its state, and no error. */
export async function signal(executionId: string, name: string) {
  try {
    await ask(SignalMutation, { input: { executionId, signal: name } });
  } catch (error) {
    if (!(error instanceof ServerError && error.code === "CONFLICT")) throw error;
  }
}

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
  /** Which; without one nothing is asked. */
  execution: { id: string; commandLine: string } | undefined;
  onClose: () => void;
  onDone?: () => void;
}

/** Asks which signal to send. */
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
          <span className="mono">{execution && commandText(execution.commandLine)}</span> gets it, with its process group. What it does about it is its own business.
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

/** Cancels an execution, once that was meant. */
export function CancelDialog({ execution, onClose, onDone }: ControlProps) {
  const cancel = useAction(async (id: string) => {
    await ask(CancelMutation, { id });
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
        <span className="mono">{execution && commandText(execution.commandLine)}</span> ends, with every process that it started. What it printed is kept.
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
