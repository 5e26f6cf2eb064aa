import "graphiql/setup-workers/vite";
import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import { createClient } from "graphql-ws";
import { createRoot } from "react-dom/client";
import "graphiql/style.css";
import { linkURL } from "../lib/link";
import { credentials } from "../lib/session";
import { tabs } from "./tabs";
import "./graphiql.css";

// Subscriptions go over graphql-transport-ws. The token is that of the
// dashboard's tab, where the server wants one.
const fetcher = createGraphiQLFetcher({
  url: "/graphql",
  headers: credentials(),
  wsClient: createClient({ url: linkURL(window.location), connectionParams: credentials }),
});

createRoot(document.getElementById("root")!).render(
  <GraphiQL fetcher={fetcher} defaultTabs={tabs} defaultEditorToolsVisibility="variables" shouldPersistHeaders={false}>
    <GraphiQL.Logo>
      <a href="/">Rockpool</a>
    </GraphiQL.Logo>
  </GraphiQL>,
);
