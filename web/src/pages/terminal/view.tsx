import { useEffect, useEffectEvent, useRef } from "react";
import type { ServerError } from "../../lib/request";
import { TerminalSession, type End } from "./session";

export interface TerminalViewProps {
  id: string;
  onEnd: (end: End) => void;
  onError: (error: ServerError) => void;
}

/** TerminalView shows the terminal of an execution. */
export default function TerminalView({ id, onEnd, onError }: TerminalViewProps) {
  const host = useRef<HTMLDivElement>(null);
  const ended = useEffectEvent(onEnd);
  const failed = useEffectEvent(onError);
  useEffect(() => {
    const session = new TerminalSession(id, { onEnd: (end) => ended(end), onError: (error) => failed(error) });
    void session.open(host.current!);
    session.screen.terminal.focus();
    const resizes = new ResizeObserver(() => session.screen.fit());
    resizes.observe(host.current!);
    return () => {
      resizes.disconnect();
      session.close();
    };
  }, [id]);
  return (
    <div className="terminal-box">
      <div ref={host} />
    </div>
  );
}
