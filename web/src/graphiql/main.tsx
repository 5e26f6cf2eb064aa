import "graphiql/setup-workers/vite";
import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import { createClient } from "graphql-ws";
import { createRoot } from "react-dom/client";
import "graphiql/style.css";
import { unauthorized } from "../lib/follow";
import { linkURL } from "../lib/link";
import { credentials, session } from "../lib/session";
import { TokenDialog } from "../ui/token";
import { tabs } from "./tabs";
import "../styles/colours.css";
import "../styles/parts.css";
import "./graphiql.css";

// Subscriptions go over graphql-transport-ws. The token is the dashboard's, where
// the server wants one; a tab that has none asks for it, as the dashboard does.
const fetcher = createGraphiQLFetcher({
  url: "/graphql",
  fetch: async (address, init) => {
    const response = await fetch(address, { ...init, headers: { ...(init?.headers as Record<string, string>), ...credentials() } });
    if (response.status === 401) session.want();
    return response;
  },
  wsClient: createClient({
    url: linkURL(window.location),
    connectionParams: credentials,
    on: {
      closed: (event) => {
        if (event instanceof CloseEvent && unauthorized.includes(event.code)) session.want();
      },
    },
  }),
});

createRoot(document.getElementById("root")!).render(
  <>
    <GraphiQL fetcher={fetcher} defaultTabs={tabs} defaultEditorToolsVisibility="variables" shouldPersistHeaders={false}>
      <GraphiQL.Logo>
        <a href="/">Rockpool</a>
      </GraphiQL.Logo>
    </GraphiQL>
    <TokenDialog />
  </>,
);
