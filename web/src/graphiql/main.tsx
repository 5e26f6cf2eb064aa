import { lazy, Suspense, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { request } from "../lib/request";
import { Loading } from "../ui/parts";
import { TokenDialog } from "../ui/token";
import { Narrow } from "./narrow";
import { LatestQuery, renew, starterOf, type Starter } from "./starter";
import "../styles/colours.css";
import "../styles/base.css";
import "../styles/parts.css";
import "./page.css";

const Explorer = lazy(() => import("./explorer"));

/** begin returns the starter. After a failure, for example without a token, it is that of an empty server. */
async function begin(): Promise<Starter> {
  const starter = starterOf(await request(LatestQuery, {}).catch(() => undefined));
  renew(localStorage, starter);
  return starter;
}

const room = window.matchMedia("(min-width: 48rem)");

/**
 * Page shows GraphiQL in a window of at least 48 rem. It then stays when the window shrinks, to keep its contents.
 */
function Page() {
  const [wide, setWide] = useState(room.matches);
  const [starter, setStarter] = useState<Starter>();
  useEffect(() => {
    const widened = () => setWide((before) => before || room.matches);
    room.addEventListener("change", widened);
    return () => room.removeEventListener("change", widened);
  }, []);
  useEffect(() => {
    if (wide) void begin().then(setStarter);
  }, [wide]);
  if (!wide) return <Narrow />;
  return starter ? (
    <Suspense fallback={<Loading what="GraphiQL" />}>
      <main id="main">
        <h1 className="hidden-text">GraphiQL</h1>
        <Explorer starter={starter} />
      </main>
    </Suspense>
  ) : (
    <Loading what="GraphiQL" />
  );
}

createRoot(document.getElementById("root")!).render(
  <>
    <Page />
    <TokenDialog />
  </>,
);
