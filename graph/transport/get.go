package transport

import (
	"net/http"

	"github.com/99designs/gqlgen/graphql"
)

// GET serves queries in the address. It refuses mutations, because a browser sends a GET for any
// page that has a link.
type GET struct{ Settings }

// Supports reports whether a request is for this transport.
func (GET) Supports(r *http.Request) bool {
	return r.Method == http.MethodGet && !isUpgrade(r)
}

// Do serves a request.
func (t GET) Do(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	t.serve(w, r, exec, func(h *hold) (*graphql.RawParams, int, error) { return t.readParams(w, r, nil, h) })
}
