package routes

import (
	"fmt"
	"net/http"

	"github.com/rockpool/rockpool/clients"
)

// welcome responds to requests for the server's address with where the API is.
func welcome(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	scheme := "http"
	if clients.Encrypted(r) {
		scheme = "https"
	}
	_, _ = fmt.Fprintf(w, `Rockpool runs other people's programs, each in an isolated runner. In a browser,
this address is its dashboard.

The API is GraphQL, at %[2]s://%[1]s/graphql: queries and mutations by POST,
subscriptions over a WebSocket with the subprotocol graphql-transport-ws, or as
server-sent events (Accept: text/event-stream).

    curl %[2]s://%[1]s/graphql -H 'Content-Type: application/json' \
         -d '{"query": "{ version environments { id pool { idle size reason } } }"}'

Or run a program:

    rockpool run hello.py

Prometheus scrapes %[2]s://%[1]s/metrics.
`, r.Host, scheme)
}
