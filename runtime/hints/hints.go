// Package hints passes hints to look again on to all who watch; a hint blocks
// nobody but whom it calls.
package hints

import (
	"context"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// Watchers are those who watch. The zero value is ready, and its methods may be
// called at once.
type Watchers struct {
	mu  sync.Mutex // guards all
	all []*watcher // never changed in place
}

type watcher struct{ hint func(runtime.EnvironmentID) }

// Send hints at the runners of an environment, "" for any, to all who watch.
func (w *Watchers) Send(id runtime.EnvironmentID) {
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	for _, one := range all {
		one.hint(id)
	}
}

// Watch calls hint at every Send, and once for "" as soon as it watches, of what
// changed before. It returns ctx's cause when ctx ends; a last call may come then.
func (w *Watchers) Watch(ctx context.Context, hint func(runtime.EnvironmentID)) error {
	mine := &watcher{hint}
	w.mu.Lock()
	w.all = append(slices.Clone(w.all), mine)
	w.mu.Unlock()
	hint("")
	<-ctx.Done()
	w.mu.Lock()
	w.all = slices.DeleteFunc(slices.Clone(w.all), func(other *watcher) bool { return other == mine })
	w.mu.Unlock()
	return context.Cause(ctx)
}
