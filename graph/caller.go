package graph

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/peers"
)

// callers gives each request its caller; callers whose claims wait take turns. A
// WebSocket is a caller of its own. All plain HTTP requests of one peer (see
// peers.Peers) are one caller, whatever their connections: a client opens one for
// each request that waits. The server's one token tells no callers apart.
type callers struct{ webSockets atomic.Uint64 }

type callerKey struct{}

// named returns r's context with its caller, for callerOf.
func (c *callers) named(r *http.Request) context.Context {
	name := peers.Name(r.Context())
	if (transport.WebSocket{}).Supports(r) {
		name = "websocket " + strconv.FormatUint(c.webSockets.Add(1), 10)
	}
	return context.WithValue(r.Context(), callerKey{}, name)
}

// callerOf returns the caller that ctx belongs to; "" for none.
func callerOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
