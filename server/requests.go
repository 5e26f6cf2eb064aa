package server

import (
	"context"
	"math"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/server/routes"
)

// hijackedPatience is how long WebSockets have to end. They send a closing message first.
const hijackedPatience = 2 * time.Second

// requests counts the requests being served. It includes WebSockets, whose connections net/http has
// handed over and no longer knows.
type requests struct{ open *semaphore.Weighted }

func newRequests() requests { return requests{semaphore.NewWeighted(math.MaxInt64)} }

// handler serves with next and counts requests. After wait was called, it refuses them with 503. Work
// may continue after its request. It counts until it ends. The end of the context `ends` cancels it.
func (r requests) handler(ends context.Context, next http.Handler) http.Handler {
	life := clients.Life{Ends: ends, Enter: func() func() {
		if !r.open.TryAcquire(1) {
			return func() {} // wait was called, so the work ends immediately
		}
		return func() { r.open.Release(1) }
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !r.open.TryAcquire(1) {
			routes.Restrict(w.Header(), request) // the gate is further in
			http.Error(w, ErrStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer r.open.Release(1)
		next.ServeHTTP(w, request.WithContext(life.In(request.Context())))
	})
}

// wait refuses new requests and waits until the current ones have ended, at most hijackedPatience.
func (r requests) wait() {
	ctx, cancel := context.WithTimeout(context.Background(), hijackedPatience)
	defer cancel()
	_ = r.open.Acquire(ctx, math.MaxInt64)
}
