import { lazy, Suspense, useEffect, useRef, type ReactNode } from "react";
import { Link, Redirect, Route, Switch, useLocation, useSearch } from "wouter";
import { needs, type Needed } from "./lib/access";
import { ActivityProvider } from "./lib/activity";
import { CallerProvider, useCaller } from "./lib/caller";
import "./lib/traverse"; // must come before the router's listener
import { Frame } from "./ui/frame";
import { Only } from "./ui/only";
import { Empty, Loading, Page } from "./ui/parts";
import { ErrorBoundary } from "./ui/errorboundary";
import { Overview } from "./pages/overview/overview";

const Environment = lazy(() => import("./pages/environment/environment"));
const NewEnvironment = lazy(() => import("./pages/environment/new"));
const Runners = lazy(() => import("./pages/runners/runners"));
const Executions = lazy(() => import("./pages/executions/executions"));
const Execution = lazy(() => import("./pages/execution/execution"));
const Batches = lazy(() => import("./pages/batches/batches"));
const Batch = lazy(() => import("./pages/batches/batch"));
const Replay = lazy(() => import("./pages/replay/replay"));
const Playground = lazy(() => import("./pages/playground/playground"));
const Terminals = lazy(() => import("./pages/terminal/terminals"));
const Terminal = lazy(() => import("./pages/terminal/terminal"));
const Operations = lazy(() => import("./pages/operations/operations"));
const Access = lazy(() => import("./pages/access/access"));

/** App is the dashboard: the pages by address. */
export function App() {
  return (
    <CallerProvider>
      <ActivityProvider>
        <Pages />
      </ActivityProvider>
    </CallerProvider>
  );
}

/** Pages shows the page of the address. An error there affects no other page. */
function Pages() {
  const [location] = useLocation();
  return (
    <Frame>
      <Arrival location={location}>
        <ErrorBoundary key={location}>
          <Suspense fallback={<Loading what="the page" />}>
            <Switch>
              <Route path="/" component={Overview} />
              <Route path="/new-environment">
                <For title="New environment" need="change">
                  <NewEnvironment />
                </For>
              </Route>
              <Route path="/environments/:id">{({ id }) => <Environment key={id} id={id} />}</Route>
              <Route path="/runners" component={Runners} />
              <Route path="/executions" component={Executions} />
              <Route path="/executions/:id/replay">{({ id }) => <Replay key={id} id={id} />}</Route>
              <Route path="/executions/:id">{({ id }) => <Execution key={id} id={id} />}</Route>
              <Route path="/batches" component={Batches} />
              <Route path="/batches/:id">{({ id }) => <Batch key={id} id={id} />}</Route>
              <Route path="/playground" component={Playground} />
              <Route path="/terminal">
                <For title="Terminal" need="use">
                  <Terminals />
                </For>
              </Route>
              <Route path="/terminal/:id">
                {({ id }) => (
                  <For title="Terminal" need="use">
                    <Terminal key={id} id={id} />
                  </For>
                )}
              </Route>
              <Route path="/operations">
                <For title="Operations" need="cluster">
                  <Operations />
                </For>
              </Route>
              <Route path="/scheduling" component={Moved} />
              <Route path="/access/:part?">{({ part }) => <Access part={part} />}</Route>
              <Route>
                <Page title="Page not found">
                  <Empty title="No page has this address">
                    <p>
                      Go to the <Link href="/">overview</Link>.
                    </p>
                  </Empty>
                </Page>
              </Route>
            </Switch>
          </Suspense>
        </ErrorBoundary>
      </Arrival>
    </Frame>
  );
}

/** For guards a page by a named need. */
function For({ title, need, children }: { title: string; need: Needed; children: ReactNode }) {
  const { caller, may } = useCaller();
  return (
    <Only title={title} need={needs[need]} caller={caller} met={may(need)}>
      {children}
    </Only>
  );
}

/** Moved redirects the former address /scheduling to Operations. */
function Moved() {
  const search = useSearch();
  return <Redirect to={search ? `/operations?${search}` : "/operations"} replace />;
}

/** Arrival moves the focus to a new page, so that screen readers announce it. */
function Arrival({ location, children }: { location: string; children: ReactNode }) {
  const from = useRef(location);
  useEffect(() => {
    if (from.current === location) return;
    from.current = location;
    window.scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [location]);
  return <div className="page">{children}</div>;
}
