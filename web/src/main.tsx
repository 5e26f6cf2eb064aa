import { lazy, StrictMode, Suspense } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { renewLeases } from "./lib/lease";
import { grantOf, sharedId } from "./lib/share";
import { session } from "./lib/session";
import { ErrorBoundary } from "./ui/errorboundary";
import "./styles/colours.css";
import "./styles/base.css";
import "./styles/frame.css";
import "./styles/parts.css";
import "./styles/table.css";
import "./styles/views.css";
import "./styles/ansi.css";

const Share = lazy(() => import("./pages/share/share"));

/**
 * shared renders the page of a link to one execution. It uses the link's grant from the first request on, and contains
 * no other page.
 */
function shared(id: string) {
  const grant = grantOf(window.location.hash);
  session.actWithGrant(grant);
  window.addEventListener("hashchange", () => window.location.reload());
  return (
    <ErrorBoundary>
      <Suspense>
        <Share id={id} grant={grant} />
      </Suspense>
    </ErrorBoundary>
  );
}

const id = sharedId(window.location.pathname);
if (id === undefined) renewLeases();
createRoot(document.getElementById("root")!).render(<StrictMode>{id === undefined ? <App /> : shared(id)}</StrictMode>);
