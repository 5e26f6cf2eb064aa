package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/server/routes"
)

// TestWaitIncludesHijackedConnections, which net/http no longer knows, but has a timeout.
func TestWaitIncludesHijackedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, time.Hour: hijackedPatience} {
			r := newRequests()
			handler := r.handler(t.Context(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(takes) }))
			ask := func() int {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				return w.Code
			}
			var asked sync.WaitGroup
			asked.Go(func() { ask() })
			synctest.Wait()
			began := time.Now()
			asked.Go(func() {
				time.Sleep(time.Millisecond)
				if code := ask(); code != http.StatusServiceUnavailable {
					t.Errorf("a late one was answered with %d, want %d", code, http.StatusServiceUnavailable)
				}
			})
			if r.wait(); time.Since(began) != want {
				t.Errorf("it waited for %v, not %v", time.Since(began), want)
			}
			asked.Wait()
		}
	})
}

// TestWaitIncludesWorkThatOutlastsItsRequest, which ends when the server does.
func TestWaitIncludesWorkThatOutlastsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRequests()
		ends, end := context.WithCancelCause(t.Context())
		stopped := make(chan struct{})
		handler := r.handler(ends, http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			ctx, release := compat.Outlasting(request.Context())
			go func() {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrStopping) {
					t.Error(context.Cause(ctx))
				}
				time.Sleep(time.Second)
				close(stopped)
				release()
			}()
		}))
		ask := func(handler http.Handler) {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}
		ask(handler)
		synctest.Wait()
		end(ErrStopping)
		late := r.handler(ends, http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			ctx, release := compat.Outlasting(request.Context())
			defer release()
			<-ctx.Done()
		}))
		r.wait()
		select {
		case <-stopped:
		default:
			t.Error("it wasn't waited for")
		}
		ask(late)
	})
}

// TestRefusalsOfAStoppingServerRestrictBrowsers, as those of the gate do.
func TestRefusalsOfAStoppingServerRestrictBrowsers(t *testing.T) {
	r := newRequests()
	r.wait()
	request := httptest.NewRequest(http.MethodGet, "https://rockpool.example/", nil)
	want := http.Header{}
	routes.Restrict(want, request)
	w := httptest.NewRecorder()
	r.handler(t.Context(), http.NotFoundHandler()).ServeHTTP(w, request)
	if w.Code != http.StatusServiceUnavailable || len(want) < 4 {
		t.Errorf("got status %d, and %d headers to compare", w.Code, len(want))
	}
	for name := range want {
		if got := w.Header().Get(name); got != want.Get(name) {
			t.Errorf("%s: got %q, want %q", name, got, want.Get(name))
		}
	}
}
