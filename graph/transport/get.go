package transport

import (
	"net/http"

	"github.com/99designs/gqlgen/graphql"
)

// GET answers queries in the address, and refuses mutations: a browser sends a
// GET for any page that holds a link.
type GET struct{ Settings }

// Supports reports whether it is for this transport.
func (GET) Supports(r *http.Request) bool {
	return r.Method == http.MethodGet && !isUpgrade(r)
}

// Do answers.
func (t GET) Do(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	t.serve(w, r, exec, func(h *hold) (*graphql.RawParams, int, error) { return t.readParams(w, r, nil, h) })
}
