// Package executions serves executions after they have been stored: their state, events, output and
// usage, and what callers send to them. A [Registry] finds them; a [Service] lets callers use it: each
// of its methods authorises, acts and records. Lines of output have stable numbers, which lineposition.go
// defines.
package executions

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/events"
	"github.com/rockpool/rockpool/runtime/logdir"
	"github.com/rockpool/rockpool/runtime/session"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/runtime/usage"
)

// Config are a Registry's dependencies.
type Config struct {
	Store  *store.Store
	Logs   *logdir.Dir
	Agents *usage.Agents
}

// A Registry has the sessions of unfinished executions, and finds executions. It checks no caller. It is
// safe for concurrent use.
type Registry struct {
	Config
	lines *lineCache

	mu       sync.Mutex // guards the fields below
	byID     map[runtime.ExecutionID]*session.Session
	byRunner map[runtime.RunnerID][]*session.Session
}

// NewRegistry returns a Registry without sessions.
func NewRegistry(c Config) *Registry {
	return &Registry{Config: c, lines: newLineCache(), byID: map[runtime.ExecutionID]*session.Session{}, byRunner: map[runtime.RunnerID][]*session.Session{}}
}

// Add registers a session. It marks the sessions that share a runner, since the host's counters can't
// be attributed to one of them.
func (r *Registry) Add(s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.Runner()
	r.byID[s.Execution().ID] = s
	r.byRunner[id] = append(r.byRunner[id], s)
	if len(r.byRunner[id]) > 1 {
		for _, other := range r.byRunner[id] {
			other.MarkShared()
		}
	}
}

// Remove forgets a session that has ended.
func (r *Registry) Remove(s *session.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.Runner()
	delete(r.byID, s.Execution().ID)
	r.byRunner[id] = slices.DeleteFunc(r.byRunner[id], func(other *session.Session) bool { return other == s })
	if len(r.byRunner[id]) == 0 {
		delete(r.byRunner, id)
	}
}

// Session returns the session of an unfinished execution, or nil.
func (r *Registry) Session(id runtime.ExecutionID) *session.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// In returns the sessions in one runner.
func (r *Registry) In(id runtime.RunnerID) []*session.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byRunner[id])
}

// Len returns the number of unfinished executions.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

// Count returns how many executions of a tenant, or of all for nil, are running and pending.
func (r *Registry) Count(tenant *runtime.TenantID) (running, pending int) {
	r.mu.Lock()
	all := make([]*session.Session, 0, len(r.byID))
	for _, s := range r.byID {
		all = append(all, s)
	}
	r.mu.Unlock()
	for _, s := range all {
		switch x := s.Execution(); {
		case tenant != nil && x.Tenant != *tenant:
		case x.State == runtime.ExecutionPending:
			pending++
		case x.State == runtime.ExecutionRunning:
			running++
		}
	}
	return running, pending
}

// findEvery is the interval of polls for a session that is being made.
const findEvery = 20 * time.Millisecond

// Find returns the session of an execution or, if that has ended, the execution. It waits for the
// session of an execution that has just been stored.
func (r *Registry) Find(ctx context.Context, id runtime.ExecutionID) (*session.Session, runtime.Execution, error) {
	for {
		if s := r.Session(id); s != nil {
			return s, runtime.Execution{}, nil
		}
		x, err := r.Store.Execution(ctx, id)
		if err != nil || x.State == runtime.ExecutionFinished {
			return nil, x, err
		}
		if err := backoff.Sleep(ctx, findEvery); err != nil {
			return nil, x, err
		}
	}
}

// Get returns an execution once it has ended, or its current state after wait.
func (r *Registry) Get(ctx context.Context, id runtime.ExecutionID, wait time.Duration) (runtime.Execution, error) {
	if s := r.Session(id); s != nil {
		select {
		case <-s.Done():
		case <-time.After(wait):
		case <-ctx.Done():
			return runtime.Execution{}, context.Cause(ctx)
		}
		return s.Execution(), nil
	}
	return r.Store.Execution(ctx, id)
}

// Events returns a reader of an execution's events after a cursor; "" is the beginning. Close it.
func (r *Registry) Events(ctx context.Context, id runtime.ExecutionID, after string) (*events.Reader, error) {
	at, err := events.Parse(id, after)
	if err != nil {
		return nil, err
	}
	s, x, err := r.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	reader, err := events.Open(at, events.Source{Session: s, Execution: x, Log: r.Logs.Location(id), Known: r.Store.HasExecution})
	if errors.Is(err, fs.ErrNotExist) { // retention has just removed it
		return nil, store.NotFound(id)
	}
	return reader, err
}

// Object returns an execution as the object of an operation.
func (r *Registry) Object(ctx context.Context, id runtime.ExecutionID) audit.Object {
	return audit.Object{Kind: audit.OfExecution, ID: string(id), Find: func(p access.Principal) (runtime.TenantID, error) {
		x, err := r.Get(ctx, id, 0)
		if err != nil {
			return audit.WholeServer, err
		}
		return audit.Seen(x.Tenant, p.SeesExecution(x), store.NotFound(id))
	}}
}

// Refresh replaces stored executions that haven't ended by their present state.
func (r *Registry) Refresh(all []runtime.Execution) {
	for i, x := range all {
		if s := r.Session(x.ID); s != nil {
			all[i] = s.Execution() // newer than what is stored
		}
	}
}
