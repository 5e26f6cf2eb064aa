package nomad

import (
	"context"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// hints tells watchers to look again. The zero value is ready.
type hints struct {
	mu       sync.Mutex // guards watchers
	watchers []*watcher // never changed in place
}

type watcher struct{ hint func(runtime.EnvironmentID) }

func (h *hints) send(id runtime.EnvironmentID) {
	h.mu.Lock()
	watchers := h.watchers
	h.mu.Unlock()
	for _, w := range watchers {
		w.hint(id)
	}
}

func (h *hints) watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	w := &watcher{hint}
	h.mu.Lock()
	h.watchers = append(slices.Clone(h.watchers), w)
	h.mu.Unlock()
	hint("") // of what changed before anybody watched
	<-ctx.Done()
	h.mu.Lock()
	h.watchers = slices.DeleteFunc(slices.Clone(h.watchers), func(o *watcher) bool { return o == w })
	h.mu.Unlock()
	return context.Cause(ctx)
}

// Watch gives a first hint for all as soon as it watches, and none for a Mark:
// who marked knows.
func (c *Cluster) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	return c.changes.watch(ctx, hint)
}
