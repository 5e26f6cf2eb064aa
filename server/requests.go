package server

import (
	"context"
	"math"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rockpool/rockpool/doors"
)

// hijackedPatience is how long WebSockets have to end, which say farewell to
// clients first.
const hijackedPatience = 2 * time.Second

// requests knows of all that are being served, also of those whose connections
// net/http has given away and forgotten: WebSockets.
type requests struct{ open *semaphore.Weighted }

func newRequests() requests { return requests{semaphore.NewWeighted(math.MaxInt64)} }

// lasting serves with next. What outlasts a request ends with ends, and counts until then.
func (r requests) lasting(ends context.Context, next http.Handler) http.Handler {
	life := doors.Life{Ends: ends, Enter: func() func() {
		if !r.open.TryAcquire(1) {
			return func() {} // wait was called, so it ends at once
		}
		return func() { r.open.Release(1) }
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		next.ServeHTTP(w, request.WithContext(life.In(request.Context())))
	})
}

// count serves with next, until wait is called.
func (r requests) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !r.open.TryAcquire(1) {
			http.Error(w, ErrStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer r.open.Release(1)
		next.ServeHTTP(w, request)
	})
}

// wait refuses new ones, and waits for the end of those there are.
func (r requests) wait() {
	ctx, cancel := context.WithTimeout(context.Background(), hijackedPatience)
	defer cancel()
	_ = r.open.Acquire(ctx, math.MaxInt64)
}
