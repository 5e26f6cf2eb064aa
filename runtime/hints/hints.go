// Package hints passes hints on to all watchers. A hint means: read the state again. Send blocks
// only as long as the watchers' functions do.
package hints

import (
	"context"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// Watchers are the present watchers. The zero value is ready. Its methods are safe for concurrent use.
type Watchers struct {
	mu  sync.Mutex // guards all
	all []*watcher // never changed in place
}

// A watcher is a pointer to a function, because functions can't be compared.
type watcher struct{ hint func(runtime.EnvironmentID) }

// Send hints to all watchers that an environment's runners, or any for "", may have changed.
func (w *Watchers) Send(id runtime.EnvironmentID) {
	w.mu.Lock()
	all := w.all
	w.mu.Unlock()
	for _, one := range all {
		one.hint(id)
	}
}

// Watch calls hint at every Send, and first once for "", because of earlier changes. It returns
// ctx's cause when ctx ends; hint may be called once more at that moment.
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
