package daemon

import (
	"context"
	"sync"
)

// turns serializes the requests for each sandbox.
type turns struct {
	mu   sync.Mutex               // guards busy
	busy map[string]chan struct{} // by sandbox; closed when its request ends
}

// take waits until no other request works on id. The caller must call end.
func (t *turns) take(ctx context.Context, id string) (end func(), err error) {
	for {
		t.mu.Lock()
		ended, busy := t.busy[id]
		if !busy {
			ended = make(chan struct{})
			t.busy[id] = ended
		}
		t.mu.Unlock()
		if !busy {
			return func() {
				t.mu.Lock()
				delete(t.busy, id)
				t.mu.Unlock()
				close(ended)
			}, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
