import "graphiql/setup-workers/vite";
import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { useGraphiQL, useMonaco } from "@graphiql/react";
import { GraphiQL } from "graphiql";
import { createClient } from "graphql-ws";
import { useEffect, useState, useSyncExternalStore } from "react";
import "graphiql/style.css";
import { unauthorized } from "../lib/follow";
import { linkURL } from "../lib/link";
import { credentials, session } from "../lib/session";
import { accumulate } from "./accumulate";
import { note, noted, startedBy, withId, type Starter } from "./starter";
import { tabsOf } from "./tabs";
import "./graphiql.css";

// Subscriptions use graphql-transport-ws. The token is the dashboard's; a tab without one asks for it if the server
// requires one.
const fetched = createGraphiQLFetcher({
  url: "/graphql",
  enableIncrementalDelivery: false, // the API doesn't support it
  fetch: async (address, init) => {
    const response = await fetch(address, { ...init, headers: { ...(init?.headers as Record<string, string>), ...credentials() } });
    if (response.status === 401) session.requireToken();
    return response;
  },
  wsClient: createClient({
    url: linkURL(window.location),
    connectionParams: credentials,
    on: {
      closed: (event) => {
        if (event instanceof CloseEvent && unauthorized.includes(event.code)) session.requireToken();
      },
    },
  }),
});

/** Called with the id of an execution started on this page. */
let started: ((id: string) => void) | undefined;

/**
 * fetcher collects the events of a subscription into one result, and notices the start of an
 * execution.
 */
const fetcher: typeof fetched = async (...request) => {
  const answer = await fetched(...request);
  if (typeof answer === "object" && answer !== null && Symbol.asyncIterator in answer) return accumulate(answer) as unknown as typeof answer;
  const id = startedBy(answer);
  if (id !== undefined) started?.(id);
  return answer;
};

/** FillIn writes the id of a started execution into the variables, so that the next operation shows its output. */
function FillIn() {
  const editor = useGraphiQL((state) => state.variableEditor);
  useEffect(() => {
    started = (id) => {
      const before = editor?.getValue() ?? "";
      const after = withId(before, id, noted(localStorage));
      if (after === before) return;
      editor?.setValue(after);
      note(localStorage, id);
    };
    return () => {
      started = undefined;
    };
  }, [editor]);
  return null;
}

const dark = window.matchMedia("(prefers-color-scheme: dark)");

/** listen calls back when the system's theme changes, until the returned function is called. */
function listen(changed: () => void) {
  dark.addEventListener("change", changed);
  return () => dark.removeEventListener("change", changed);
}

/** useTheme returns the theme chosen in the dashboard, or the system's. */
function useTheme(): "light" | "dark" {
  const system = useSyncExternalStore(listen, () => dark.matches) ? "dark" : "light";
  const chosen = document.documentElement.dataset.theme;
  return chosen === "light" || chosen === "dark" ? chosen : system;
}

/** hex returns a colour of the dashboard in one of its themes, as #rrggbb. */
function hex(name: string, scheme: "light" | "dark"): string {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.colorScheme = scheme;
  probe.style.color = `var(--${name})`;
  const channels = getComputedStyle(probe).color.match(/\d+/g)!.slice(0, 3);
  probe.remove();
  return `#${channels.map((channel) => Number(channel).toString(16).padStart(2, "0")).join("")}`;
}

/** Colours replaces the themes of GraphiQL's editors with the dashboard's colours. */
function Colours() {
  const monaco = useMonaco((state) => state.monaco);
  useEffect(() => {
    for (const scheme of ["light", "dark"] as const) {
      const of = (name: string) => hex(name, scheme);
      monaco?.editor.defineTheme(`graphiql-${scheme.toUpperCase()}`, {
        base: scheme === "dark" ? "vs-dark" : "vs",
        inherit: true,
        colors: {
          "editor.background": "#ffffff00",
          "scrollbar.shadow": "#ffffff00",
          "editor.foreground": of("ink"),
          "editorLineNumber.foreground": of("ink-soft"),
          focusBorder: of("accent"),
          "textLink.foreground": of("accent"),
          "textLink.activeForeground": of("accent"),
          "list.hoverBackground": of("accent-soft"),
          "list.highlightForeground": of("accent"),
          "list.focusHighlightForeground": of("accent"),
          "editorSuggestWidget.background": of("raised"),
          "editorSuggestWidget.selectedBackground": of("accent-soft"),
          "editorSuggestWidget.selectedForeground": of("accent"),
          "editorHoverWidget.background": of("raised"),
          "editorWidget.background": of("raised"),
          "quickInput.background": of("raised"),
          "menu.background": of("raised"),
          "menu.selectionBackground": of("accent-soft"),
          "menu.selectionForeground": of("accent"),
          "input.background": of("sunken"),
        },
        rules: [
          { token: "comment", foreground: of("ink-soft") },
          { token: "keyword", foreground: of("accent") },
          { token: "string", foreground: of("good") },
          { token: "string.key.json", foreground: of("accent") },
          { token: "string.value.json", foreground: of("good") },
          { token: "number", foreground: of("warn") },
          { token: "keyword.json", foreground: of("warn") },
          { token: "type.identifier", foreground: of("claimed") },
          { token: "argument.identifier", foreground: of("warn") },
        ],
      });
    }
  }, [monaco]);
  return null;
}

const roomForDocs = window.matchMedia("(min-width: 64rem)");
const closed = "rockpool.graphiql.closed"; // GraphiQL itself doesn't store that the docs were closed

/** Explorer is GraphiQL with the dashboard's colours, token and examples. */
export default function Explorer({ starter }: { starter: Starter }) {
  const [docs] = useState(() => (roomForDocs.matches && !localStorage.getItem(closed) ? { visiblePlugin: "Documentation Explorer" } : {}));
  return (
    <GraphiQL
      {...docs}
      fetcher={fetcher}
      defaultTabs={tabsOf(starter)}
      defaultEditorToolsVisibility="variables"
      shouldPersistHeaders={false}
      forcedTheme={useTheme()}
      onTogglePluginVisibility={(plugin) => localStorage.setItem(closed, plugin ? "" : "yes")}
    >
      <GraphiQL.Logo>
        <a href="/">Rockpool</a>
      </GraphiQL.Logo>
      <FillIn />
      <Colours />
    </GraphiQL>
  );
}
