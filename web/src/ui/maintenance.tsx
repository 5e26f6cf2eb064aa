import { Link } from "wouter";
import { useActivity } from "../lib/activity";
import { useCaller } from "../lib/caller";

/** Maintenance reports on every page that the cluster is draining. */
export function Maintenance() {
  const { data } = useActivity();
  const { may } = useCaller();
  return (
    <div role="status">
      {data?.draining && (
        <div className="maintenance">
          <b>The cluster is draining.</b> New runners don't start; claims wait.
          {may("cluster") && <Link href="/operations">Show progress</Link>}
        </div>
      )}
    </div>
  );
}
