package files

import (
	"context"
	"slices"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/paths"
)

// Limits of the changes queued for a slow subscriber. Beyond them, the subscriber gets LOST.
const (
	maxWaiting      = 2 * agent.MaxChanges
	maxWaitingBytes = 256 << 10 // of paths
)

// A Watch is a subscription to the changes of files. It is for one goroutine. Close it.
type Watch struct {
	changes chan runtime.FileChange // closed when the watch has ended
	err     error                   // why it ended; valid after changes is closed
	stop    context.CancelFunc
	ended   chan struct{} // closed when all its goroutines have ended; Close waits for it
}

// WatchFiles reports changes in a directory of a claimed runner, BEGAN first; "" is the workspace.
// With recursive it includes everything below. Only its start counts as a use of the claim, so a
// watch doesn't keep the runner alive. It ends with ctx or Close, which waits for its goroutines.
func (a *Access) WatchFiles(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) (*Watch, error) {
	if dir != "" {
		if err := ValidatePath("path", dir); err != nil {
			return nil, err
		}
	}
	conn, done, err := a.dial(ctx, id)
	if err != nil {
		return nil, err
	}
	done()
	ctx, cancel := context.WithCancel(ctx)
	watching, err := agent.WatchFiles(ctx, conn, agent.Watch{Path: dir, Recursive: recursive})
	if err != nil {
		cancel()
		return nil, a.translate(id, err)
	}
	w := &Watch{changes: make(chan runtime.FileChange), stop: cancel, ended: make(chan struct{})}
	arrived := make(chan agent.Changes)
	go func() {
		defer close(w.ended)
		defer close(w.changes)
		w.err = a.translate(id, carry(ctx, watching, arrived, w.changes))
	}()
	return w, nil
}

// carry sends the changes that watching receives, in order, and queues a limited number of them. It
// returns why it ended, after all goroutines that it started.
func carry(ctx context.Context, watching *agent.Watching, arrived chan agent.Changes, out chan<- runtime.FileChange) error {
	read, stopped := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	// The goroutine only reads. The loop below queues for a slow receiver.
	go func() {
		defer close(stopped)
		defer watching.Close()
		for {
			changes, err := watching.Next()
			if err != nil {
				read <- err
				return
			}
			select {
			case arrived <- changes:
			case <-ctx.Done():
				read <- context.Cause(ctx)
				return
			}
		}
	}()
	defer func() { cancel(); <-stopped }()
	waiting := []runtime.FileChange{{Type: runtime.FilesBegan}}
	var end error
	for {
		// After the stream's end, the queued changes are still sent.
		if end != nil && len(waiting) == 0 {
			return end
		}
		to, first := chan<- runtime.FileChange(nil), runtime.FileChange{}
		if len(waiting) > 0 {
			to, first = out, waiting[0]
		}
		select {
		case changes := <-arrived:
			waiting = appendChanges(waiting, changes)
		case end = <-read:
			read = nil
		case to <- first:
			waiting[0] = runtime.FileChange{} // release its path
			waiting = waiting[1:]
		case <-ctx.Done(): // the stream ended with ctx
			return context.Cause(ctx)
		}
	}
}

// appendChanges appends an agent's changes to the queue, or replaces everything with LOST.
func appendChanges(waiting []runtime.FileChange, changes agent.Changes) []runtime.FileChange {
	types := map[agent.ChangeKind]runtime.FileChangeType{
		agent.ChangeCreated: runtime.FileCreated, agent.ChangeChanged: runtime.FileChanged, agent.ChangeRemoved: runtime.FileRemoved,
	}
	held, added := 0, 0
	for _, c := range waiting {
		held += len(c.Path)
	}
	for _, c := range changes.Changes {
		added += len(c.Path)
	}
	if changes.Lost || len(waiting)+len(changes.Changes) > maxWaiting || held+added > maxWaitingBytes {
		// A queued BEGAN stays the first change.
		kept := 0
		if len(waiting) > 0 && waiting[0].Type == runtime.FilesBegan {
			kept = 1
		}
		waiting = append(slices.Clone(waiting[:kept]), runtime.FileChange{Type: runtime.FilesLost})
	}
	// These changes don't even fit into an empty queue. LOST covers them too.
	if added > maxWaitingBytes {
		return waiting
	}
	for _, c := range changes.Changes {
		waiting = append(waiting, runtime.FileChange{Type: types[c.Kind], Path: paths.Text(string(c.Path))})
	}
	return waiting
}

// Next waits for a change. Its error says why there are no more: RUNNER_GONE, FILE_ERROR if the
// directory was removed, LIMIT_EXCEEDED if there is too much below it, or ctx's cause.
func (w *Watch) Next(ctx context.Context) (runtime.FileChange, error) {
	select {
	case change, ok := <-w.changes:
		if ok {
			return change, nil
		}
		return runtime.FileChange{}, w.err
	case <-ctx.Done():
		return runtime.FileChange{}, context.Cause(ctx)
	}
}

// Close ends the watch, and returns when its goroutines have ended.
func (w *Watch) Close() {
	w.stop()
	<-w.ended
}
