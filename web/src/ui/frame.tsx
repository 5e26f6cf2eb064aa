import { useEffect, useState, type MouseEvent, type ReactNode } from "react";
import { Link, useLocation, useRoute } from "wouter";
import icon from "../icon.svg";
import { useCaller } from "../lib/caller";
import { useLink } from "../lib/hooks";
import { Maintenance } from "./maintenance";
import { Offer } from "./offer";
import { ForgetToken, SignIn, TokenDialog } from "./token";

/** Frame is the navigation and the dialogs around every page. */
export function Frame({ children }: { children: ReactNode }) {
  const { version } = useCaller();
  const [location] = useLocation();
  // On a narrow screen the navigation is a row that scrolls.
  useEffect(() => {
    document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [location]);
  return (
    <div className="frame">
      <SkipLink />
      <header className="side">
        <Link href="/" className="brand">
          <img src={icon} alt="" width="26" height="26" />
          Rockpool
        </Link>
        <nav className="nav" aria-label="Pages">
          <Item href="/" also={/^\/(environments\/|new-environment$)/}>
            Overview
          </Item>
          <Item href="/runners">Runners</Item>
          <Item href="/executions" also={/^\/(executions\/|batches)/}>
            Executions
          </Item>
          <Offer to="use">
            <Item href="/playground">Playground</Item>
            <Item href="/terminal" also="/terminal/*">
              Terminal
            </Item>
          </Offer>
          <Offer to="cluster">
            <Item href="/operations">Operations</Item>
          </Offer>
          <Item href="/access" also="/access/*">
            Access
          </Item>
          <a href="/graphiql">GraphiQL</a>
        </nav>
        <div className="side-foot small soft">
          <SignIn />
          <Theme />
          <ForgetToken />
          <span className="server-version">{version ? `Rockpool ${version}` : "\u00a0"}</span>
        </div>
      </header>
      <div className="content">
        <Maintenance />
        {children}
      </div>
      <LinkBanner />
      <TokenDialog />
    </div>
  );
}

/** SkipLink moves the focus past the navigation. It keeps the address's fragment: a program, a moment or lines. */
export function SkipLink() {
  const skip = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey) return; // a new tab
    event.preventDefault();
    document.getElementById("main")?.focus();
  };
  return (
    <a className="skip" href="#main" onClick={skip}>
      Skip to the content
    </a>
  );
}

/** Item is a link of the navigation. It is current on its page, and on those that also matches. */
function Item({ href, also, children }: { href: string; also?: string | RegExp; children: ReactNode }) {
  const [here] = useRoute(href);
  const [below] = useRoute(also ?? href);
  return (
    <Link href={href} aria-current={here || below ? "page" : undefined}>
      {children}
    </Link>
  );
}

const themes = ["system", "light", "dark"] as const;
type Theme = (typeof themes)[number];

/** Theme chooses the colours, for this browser. */
function Theme() {
  const [theme, setTheme] = useState<Theme>(() => (document.documentElement.dataset.theme as Theme | undefined) ?? "system");
  const choose = (next: Theme) => {
    setTheme(next);
    if (next === "system") {
      delete document.documentElement.dataset.theme;
      localStorage.removeItem("rockpool.theme");
    } else {
      document.documentElement.dataset.theme = next;
      localStorage.setItem("rockpool.theme", next);
    }
  };
  return (
    <label className="row tight">
      <span className="hidden-text">Theme</span>
      <select className="select" value={theme} onChange={(event) => choose(event.target.value as Theme)}>
        <option value="system">System theme</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
    </label>
  );
}

/** LinkBanner reports a lost connection after 400 ms. */
export function LinkBanner() {
  const state = useLink();
  const [said, setSaid] = useState(false);
  useEffect(() => {
    if (state !== "lost") return setSaid(false);
    const timer = setTimeout(() => setSaid(true), 400);
    return () => clearTimeout(timer);
  }, [state]);
  return (
    <div aria-live="polite">
      {said && <div className="link-state">Connection lost. Reconnecting; the page may be out of date.</div>}
    </div>
  );
}
