import { graphql } from "./graphql";
import { request, type ServerError } from "./request";
import { store } from "./store";

const RenewMutation = graphql(`
  mutation RenewLease($id: ID!) {
    renewLease(id: $id) {
      renewed
    }
  }
`);

/** lease is the lease of what this tab starts, in seconds: the server cancels it that long after the tab is closed. */
export const lease = 600;

const every = 120_000; // ms; browsers call timers of hidden pages once a minute
const key = "rockpool.leases"; // in the tab's storage, so a reload continues

/** leased returns the executions whose leases this tab renews. */
function leased(): string[] {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(key) ?? "[]");
    return Array.isArray(value) ? value.filter((id) => typeof id === "string") : [];
  } catch {
    return [];
  }
}

/** hold renews an execution's lease from now on, until it has ended. */
export function hold(id: string) {
  store(sessionStorage, key, JSON.stringify([...leased().filter((other) => other !== id), id]));
}

/** Renews the leases of this tab, and forgets those of executions that have ended or are gone. */
async function renew() {
  for (const id of leased()) {
    const keeps = await request(RenewMutation, { id }).then(
      ({ renewLease }) => renewLease.renewed,
      (error: ServerError) => error.code !== "EXECUTION_NOT_FOUND",
    );
    if (!keeps) store(sessionStorage, key, JSON.stringify(leased().filter((other) => other !== id)));
  }
}

/** renewLeases renews the leases of this tab while the page is open. It is called once. */
export function renewLeases() {
  void renew();
  setInterval(() => void renew(), every);
}
