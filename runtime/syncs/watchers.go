package syncs

import (
	"context"
	"slices"
	"sync"
)

// Watchers are the present watchers of something whose parts have ids. A hint to them means: read the state
// again. The zero value is ready. Its methods are safe for concurrent use.
type Watchers[ID comparable] struct {
	mu  sync.Mutex     // guards all
	all []*watcher[ID] // never changed in place
}

// A watcher is a pointer to a function, because functions can't be compared.
type watcher[ID comparable] struct{ hint func(ID) }

// Send hints to all watchers that the part id, or any part for the zero id, may have changed. It blocks only
// as long as the watchers' functions do.
func (w *Watchers[ID]) Send(id ID) {
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	for _, one := range all {
		one.hint(id)
	}
}

// Watch calls hint at every Send, and first once for the zero id, because of earlier changes. It returns
// ctx's cause when ctx ends; hint may be called once more at that moment.
func (w *Watchers[ID]) Watch(ctx context.Context, hint func(ID)) error {
	mine := &watcher[ID]{hint}
	w.mu.Lock()
	w.all = append(slices.Clone(w.all), mine)
	w.mu.Unlock()
	var all ID
	hint(all)
	<-ctx.Done()
	w.mu.Lock()
	w.all = slices.DeleteFunc(slices.Clone(w.all), func(other *watcher[ID]) bool { return other == mine })
	w.mu.Unlock()
	return context.Cause(ctx)
}

// Hint sends to a channel of capacity 1 without blocking: a pending hint is enough.
func Hint(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
