package transport

import (
	"context"
	"net/http"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// startingPatience is how long a request waits for a server that is starting. Most starts take
// less.
const startingPatience = 5 * time.Second

// Starting says when a server has restored its state. A server responds earlier, for example while it
// waits for its cluster.
type Starting struct{ Over <-chan struct{} } // closed then; nil if it has already

// IsOver reports whether the start is over. It doesn't block.
func (s Starting) IsOver() bool {
	select {
	case <-s.Over:
		return true
	default:
		return s.Over == nil
	}
}

// Wait waits for the end of the start, at most startingPatience. It returns CLUSTER_UNAVAILABLE if
// that comes later, or ctx ends.
func (s Starting) Wait(ctx context.Context) *runtime.Error {
	if s.IsOver() {
		return nil
	}
	late := time.NewTimer(startingPatience)
	defer late.Stop()
	select {
	case <-s.Over:
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is starting: it waits for its cluster: try again later; health says more")
}

// Guard serves requests with next when the start is over.
func (s Starting) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Wait(r.Context()); err != nil {
			RefuseTyped(w, http.StatusServiceUnavailable, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
