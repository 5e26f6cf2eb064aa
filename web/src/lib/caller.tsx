import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { CallerFragment, meets, needs, type Caller, type Needed } from "./access";
import { request, type ServerError } from "./request";
import { graphql, type ResultOf } from "./graphql";

const HelloQuery = graphql(
  `
    query Hello {
      version
      me {
        ...CallerParts
      }
      tenants {
        id
      }
    }
  `,
  [CallerFragment],
);
type Hello = ResultOf<typeof HelloQuery>;

/** Known is what the dashboard knows about its caller and server. */
export interface Known {
  /** The caller; undefined until the server has reported it. */
  caller: Caller | undefined;
  version: string | undefined;
  /** The names of the tenants that the caller sees. */
  tenants: readonly string[];
  /** Whether lists show tenants: the caller acts for all tenants, and there are several. */
  showTenants: boolean;
  may: (what: Needed) => boolean;
  /** Why the caller isn't known yet. */
  error: ServerError | undefined;
  /** Queries again, after a tenant was created or deleted. */
  reload: () => void;
}

/** knownFrom derives a Known from the query's result. Without one, nothing is allowed. */
function knownFrom(hello: Hello | undefined, error: ServerError | undefined, reload: () => void): Known {
  const tenants = hello?.tenants.map(({ id }) => id) ?? [];
  return {
    caller: hello?.me,
    version: hello?.version,
    tenants,
    showTenants: hello?.me.tenant === null && tenants.length > 1,
    may: (what) => meets(hello?.me, needs[what]),
    error: hello ? undefined : error,
    reload,
  };
}

const Context = createContext<Known>(knownFrom(undefined, undefined, () => {}));

/** useCaller returns the caller as the server reports it, and the features to show to it. */
export function useCaller(): Known {
  return useContext(Context);
}

const tryEvery = 3_000;

/** CallerProvider queries the caller once. After a failure it tries again every 3 s. */
export function CallerProvider({ children }: { children: ReactNode }) {
  const [hello, setHello] = useState<Hello>();
  const [error, setError] = useState<ServerError>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        setHello(await request(HelloQuery, {}, stop.signal));
      } catch (failure) {
        if (stop.signal.aborted) return;
        setError(failure as ServerError);
        timer = setTimeout(() => void load(), tryEvery);
      }
    };
    void load();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [round]);
  const reload = useCallback(() => setRound((n) => n + 1), []);
  const known = useMemo(() => knownFrom(hello, error, reload), [hello, error, reload]);
  return <Context value={known}>{children}</Context>;
}
