package files

import (
	"context"
	"slices"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// Bounds of the changes that wait for a slow subscriber. Beyond them, the subscriber gets LOST.
const (
	maxWaiting      = 2 * agent.MaxChanges
	maxWaitingBytes = 256 << 10 // of paths
)

// A Watch is a subscription to the changes of files. It is for one goroutine.
type Watch struct {
	changes chan runtime.FileChange
	err     error // of the end: read it after changes is closed
	stop    context.CancelFunc
	ended   chan struct{}
}

// WatchFiles reports changes in a directory of a claimed runner, from its return on, BEGAN first; "" is the workspace. With
// recursive also those below. Only its start counts as a use of the claim. A watch doesn't keep the runner alive. It
// ends with ctx, too; the caller closes it.
func (a *Access) WatchFiles(ctx context.Context, id runtime.RunnerID, dir string, recursive bool) (*Watch, error) {
	if dir != "" {
		if err := validatePath("path", dir); err != nil {
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

// carry sends what a watching receives, in order. It holds a bounded number of changes, and returns why it
// ended, with all goroutines that it started.
func carry(ctx context.Context, watching *agent.Watching, arrived chan agent.Changes, out chan<- runtime.FileChange) error {
	read, stopped := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
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
			waiting[0] = runtime.FileChange{} // its path is held no longer
			waiting = waiting[1:]
		case <-ctx.Done(): // its stream ended with ctx
			return context.Cause(ctx)
		}
	}
}

// appendChanges appends an agent's changes to those that wait, or reports all as lost.
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
		kept := 0
		if len(waiting) > 0 && waiting[0].Type == runtime.FilesBegan {
			kept = 1
		}
		waiting = append(slices.Clone(waiting[:kept]), runtime.FileChange{Type: runtime.FilesLost})
	}
	if added > maxWaitingBytes {
		return waiting
	}
	for _, c := range changes.Changes {
		waiting = append(waiting, runtime.FileChange{Type: types[c.Kind], Path: string(c.Path)})
	}
	return waiting
}

// Next waits for a change. An error says why there are no more: RUNNER_GONE, FILE_ERROR when the directory
// went, LIMIT_EXCEEDED when there is too much below it, or that ctx ended.
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

// Close ends the watch, and returns when it has ended.
func (w *Watch) Close() {
	w.stop()
	<-w.ended
}
