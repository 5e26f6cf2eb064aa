import { useEffect, useRef, useState } from "react";
import { beforeTraversal } from "../lib/traverse";
import { Dialog } from "./parts";

/**
 * Unsaved asks for confirmation before a link, back or forward leaves a page with unsaved changes. For a reload or a
 * closed tab the browser asks. Navigation by the page itself, for example after saving, isn't affected.
 */
export function Unsaved({ changes }: { changes: boolean }) {
  const [leave, setLeave] = useState<() => void>();
  const leaving = useRef(false);
  useEffect(() => {
    if (!changes) return;
    leaving.current = false;
    const here = window.location.href;
    const elsewhere = (to: URL) => to.origin === window.location.origin && to.pathname + to.search !== new URL(here).pathname + new URL(here).search;
    const go = (how: () => void) => () => {
      leaving.current = true;
      setLeave(undefined);
      how();
    };
    const click = (event: MouseEvent) => {
      const anchor = event.target instanceof Element ? event.target.closest("a") : null;
      if (leaving.current || !anchor?.href || anchor.target || anchor.hasAttribute("download")) return;
      if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || !elsewhere(new URL(anchor.href))) return;
      event.preventDefault();
      event.stopPropagation();
      setLeave(() => go(() => anchor.click()));
    };
    const back = (event: PopStateEvent) => {
      if (leaving.current || !elsewhere(new URL(window.location.href))) return;
      event.stopImmediatePropagation();
      window.history.pushState(null, "", here); // stays on the page; leaving goes back over this entry
      setLeave(() => go(() => window.history.back()));
    };
    const unload = (event: BeforeUnloadEvent) => {
      if (!leaving.current) event.preventDefault();
    };
    document.addEventListener("click", click, true);
    const removeGuard = beforeTraversal(back);
    window.addEventListener("beforeunload", unload);
    return () => {
      document.removeEventListener("click", click, true);
      removeGuard();
      window.removeEventListener("beforeunload", unload);
    };
  }, [changes]);
  const stay = () => setLeave(undefined);
  return (
    <Dialog title="Leave without saving?" open={leave !== undefined} onClose={stay}>
      <p>Your changes aren't saved.</p>
      <div className="row">
        <button type="button" className="button" onClick={stay}>
          Stay
        </button>
        <button type="button" className="button danger" onClick={() => leave?.()}>
          Leave
        </button>
      </div>
    </Dialog>
  );
}
