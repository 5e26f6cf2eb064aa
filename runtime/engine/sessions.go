package engine

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/session"
)

// addSession makes a session findable, and notes which executions share a
// runner: what the host counts there can't be told apart between them.
func (e *Engine) addSession(s *session.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := s.Runner()
	e.sessions[s.Execution().ID] = s
	e.sessionsIn[id] = append(e.sessionsIn[id], s)
	if len(e.sessionsIn[id]) > 1 {
		for _, other := range e.sessionsIn[id] {
			other.Crowd()
		}
	}
}

func (e *Engine) forgetSession(s *session.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, x := s.Runner(), s.Execution()
	e.counts.finished[x.End.Outcome].Add(1)
	delete(e.sessions, x.ID)
	e.sessionsIn[id] = slices.DeleteFunc(e.sessionsIn[id], func(other *session.Session) bool { return other == s })
	if len(e.sessionsIn[id]) == 0 {
		delete(e.sessionsIn, id)
	}
}

// session returns the session of an execution that hasn't ended, or nil.
func (e *Engine) session(id runtime.ExecutionID) *session.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[id]
}

// findEvery is how often a session is looked for that is being made.
const findEvery = 20 * time.Millisecond

// find returns the session of an execution, or, where it has ended, the
// execution. One that is stored already, but has no session yet, is waited for.
func (e *Engine) find(ctx context.Context, id runtime.ExecutionID) (*session.Session, runtime.Execution, error) {
	for {
		if s := e.session(id); s != nil {
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

// sessionsOf returns those in one runner.
func (e *Engine) sessionsOf(id runtime.RunnerID) []*session.Session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.sessionsIn[id])
}
