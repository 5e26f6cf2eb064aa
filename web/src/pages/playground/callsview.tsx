import { useState } from "react";
import { session } from "../../lib/session";
import { Card } from "../../ui/parts";
import { asCurl, asGraphQL } from "./calls";
import type { Program } from "./program";

/** The run of a program as calls of the API. */
export function CallsView({ program }: { program: Program }) {
  const [as, setAs] = useState<"GraphQL" | "curl">();
  return (
    <Card
      title="As calls of the API"
      bare
      aside={
        <div className="segments" role="group" aria-label="Show the calls as">
          {(["GraphQL", "curl"] as const).map((kind) => (
            <button key={kind} type="button" className="button small" aria-pressed={as === kind} onClick={() => setAs(as === kind ? undefined : kind)}>
              as {kind}
            </button>
          ))}
        </div>
      }
    >
      {as ? (
        <pre className="calls" tabIndex={0} aria-label={`The calls as ${as}`}>
          {as === "GraphQL" ? asGraphQL(program) : asCurl(program, window.location.origin, session.token() !== "")}
        </pre>
      ) : (
        <p className="card-body soft small">The same run, to be copied into a program of yours.</p>
      )}
    </Card>
  );
}
