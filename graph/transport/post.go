package transport

import (
	"net/http"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/clients"
)

// POST serves queries and mutations in a JSON body; see Multipart for files. It refuses other types
// of body, since a form can send them to a server from any page, without the browser asking first.
type POST struct{ Settings }

// Supports reports whether a request is for this transport.
func (POST) Supports(r *http.Request) bool {
	return r.Method == http.MethodPost && !isUpgrade(r)
}

// Do serves a request.
func (t POST) Do(w http.ResponseWriter, r *http.Request, exec graphql.GraphExecutor) {
	body := clients.NewBody(w, r, t.Silence)
	t.serve(afterwards{w, body}, r, exec, func(h *hold) (*graphql.RawParams, int, error) { return t.readParams(w, r, body, h) })
}
