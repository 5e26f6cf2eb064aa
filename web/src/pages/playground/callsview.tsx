import { useState } from "react";
import { session } from "../../lib/session";
import { Card } from "../../ui/parts";
import { asCurl, asGraphQL } from "./calls";
import type { Program } from "./program";

/** CallsView shows the run of a program as API calls. */
export function CallsView({ program }: { program: Program }) {
  const [as, setAs] = useState<"GraphQL" | "curl">();
  return (
    <Card
      title="API calls"
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
        <p className="card-body soft small">The same run as API calls, to copy into your own program.</p>
      )}
    </Card>
  );
}
