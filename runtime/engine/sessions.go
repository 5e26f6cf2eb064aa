package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/session"
)

// A sessionTable holds the sessions of executions that haven't ended.
type sessionTable struct {
	mu       sync.Mutex // guards what follows
	byID     map[runtime.ExecutionID]*session.Session
	byRunner map[runtime.RunnerID][]*session.Session
}

func newSessionTable() *sessionTable {
	return &sessionTable{byID: map[runtime.ExecutionID]*session.Session{}, byRunner: map[runtime.RunnerID][]*session.Session{}}
}

// add makes a session findable, and notes which executions share a runner: what the host
// counts there can't be told apart between them.
func (t *sessionTable) add(s *session.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := s.Runner()
	t.byID[s.Execution().ID] = s
	t.byRunner[id] = append(t.byRunner[id], s)
	if len(t.byRunner[id]) > 1 {
		for _, other := range t.byRunner[id] {
			other.Crowd()
		}
	}
}

func (t *sessionTable) remove(s *session.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := s.Runner()
	delete(t.byID, s.Execution().ID)
	t.byRunner[id] = slices.DeleteFunc(t.byRunner[id], func(other *session.Session) bool { return other == s })
	if len(t.byRunner[id]) == 0 {
		delete(t.byRunner, id)
	}
}

// get returns the session of an execution that hasn't ended, or nil.
func (t *sessionTable) get(id runtime.ExecutionID) *session.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// in returns those in one runner.
func (t *sessionTable) in(id runtime.RunnerID) []*session.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.byRunner[id])
}

func (t *sessionTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID)
}

// ended is of [session.Host].
func (e *Engine) ended(s *session.Session) {
	e.counts.finished[s.Execution().End.Outcome].Add(1)
	e.sessions.remove(s)
}

// findEvery is how often a session is looked for that is being made.
const findEvery = 20 * time.Millisecond

// find returns the session of an execution, or, where it has ended, the
// execution. One that is stored already, but has no session yet, is waited for.
func (e *Engine) find(ctx context.Context, id runtime.ExecutionID) (*session.Session, runtime.Execution, error) {
	for {
		if s := e.sessions.get(id); s != nil {
			return s, runtime.Execution{}, nil
		}
		x, err := e.store.Execution(ctx, id)
		if err != nil || x.State == runtime.ExecutionFinished {
			return nil, x, err
		}
		if err := backoff.Sleep(ctx, findEvery); err != nil {
			return nil, x, err
		}
	}
}
