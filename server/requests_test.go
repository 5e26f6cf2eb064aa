package server

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The end of what net/http has forgotten is waited for, but not for ever.
func TestRequestsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, time.Hour: hijackedPatience} {
			r := newRequests()
			handler := r.count(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(takes) }))
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
					t.Errorf("a late one was answered with %d", code)
				}
			})
			if r.wait(); time.Since(began) != want {
				t.Errorf("it waited for %v, not %v", time.Since(began), want)
			}
			asked.Wait()
		}
	})
}
