package graph

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/rockpool/rockpool/graph/transport"
)

// callers gives each request its caller; callers whose claims wait take turns. A
// WebSocket is a caller of its own. All plain HTTP requests of one address are one
// caller, whatever their connections: a client opens one for each request that
// waits. The server's one token tells no callers apart.
type callers struct{ webSockets atomic.Uint64 }

type callerKey struct{}

// named returns r with its caller, for callerOf.
func (c *callers) named(r *http.Request) *http.Request {
	name := "http " + hostName(r.RemoteAddr)
	if (transport.WebSocket{}).Supports(r) {
		name = "websocket " + strconv.FormatUint(c.webSockets.Add(1), 10)
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, name))
}

// callerOf returns the caller that ctx belongs to; "" for none.
func callerOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
