import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { CallerFragment, meets, needs, type Caller, type Needed } from "./access";
import { ask, type ServerError } from "./ask";
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

export interface Known {
  /** Who calls; undefined until the server has said it. */
  caller: Caller | undefined;
  version: string | undefined;
  /** The names of the tenants that the caller sees. */
  tenants: readonly string[];
  /** Whether it is worth saying to which tenant something belongs: the caller acts for all, and there are several. */
  showTenants: boolean;
  may: (what: Needed) => boolean;
  /** Why the server hasn't said it yet. */
  error: ServerError | undefined;
  /** Asks again, after a tenant was made or deleted. */
  reload: () => void;
}

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

/** Who calls, as the server says, and what is worth showing to them. */
export function useCaller(): Known {
  return useContext(Context);
}

const tryEvery = 3_000;

/** Asks once who calls; a server that doesn't answer is asked again. */
export function CallerProvider({ children }: { children: ReactNode }) {
  const [hello, setHello] = useState<Hello>();
  const [error, setError] = useState<ServerError>();
  const [round, setRound] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = async () => {
      try {
        setHello(await ask(HelloQuery, {}, stop.signal));
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
