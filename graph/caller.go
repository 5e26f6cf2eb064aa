package graph

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/graph/transport"
)

// callers names the caller of each request. Callers whose claims wait take turns. A WebSocket is a
// caller. All plain HTTP requests of one peer (see clients.Limiter) are one caller, also over several
// connections, since a client opens a connection for each waiting request. The server's one token
// doesn't distinguish callers.
type callers struct{ webSockets atomic.Uint64 }

// A callerKey is the key of a caller's name in a request's context.
type callerKey struct{}

// named returns r's context with its caller's name, for callerOf.
func (c *callers) named(r *http.Request) context.Context {
	name := clients.PeerName(r.Context())
	if (transport.WebSocket{}).Supports(r) {
		name = "websocket " + strconv.FormatUint(c.webSockets.Add(1), 10)
	}
	return context.WithValue(r.Context(), callerKey{}, name)
}

// callerOf returns the name of the caller that ctx belongs to; "": there is none.
func callerOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
