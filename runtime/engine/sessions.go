package engine

import (
	"context"
	"slices"

	"github.com/rockpool/rockpool/runtime"
)

// addSession makes a session findable, and notes which executions share a
// runner: what the host counts there can't be told apart between them.
func (e *Engine) addSession(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := s.runner.ID
	e.sessions[s.execution().ID] = s
	e.sessionsIn[id] = append(e.sessionsIn[id], s)
	if len(e.sessionsIn[id]) > 1 {
		for _, other := range e.sessionsIn[id] {
			other.crowded.Store(true)
		}
	}
}

func (e *Engine) forgetSession(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := s.runner.ID
	delete(e.sessions, s.execution().ID)
	e.sessionsIn[id] = slices.DeleteFunc(e.sessionsIn[id], func(other *session) bool { return other == s })
	if len(e.sessionsIn[id]) == 0 {
		delete(e.sessionsIn, id)
	}
}

// session returns the session of an execution that hasn't ended, or nil.
func (e *Engine) session(id runtime.ExecutionID) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[id]
}

// find returns the session of an execution, or, where it has ended, the
// execution. One that is stored already, but has no session yet, is waited for.
func (e *Engine) find(ctx context.Context, id runtime.ExecutionID) (*session, runtime.Execution, error) {
	for {
		if s := e.session(id); s != nil {
			return s, runtime.Execution{}, nil
		}
		x, err := e.store.Execution(ctx, id)
		if err != nil || x.State == runtime.ExecutionFinished {
			return nil, x, err
		}
		if !sleep(ctx, firstPause) {
			return nil, x, context.Cause(ctx)
		}
	}
}

// sessionsOf returns those in one runner.
func (e *Engine) sessionsOf(id runtime.RunnerID) []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.sessionsIn[id])
}
