// Package usage asks agents what is used in their runners, for any number of callers and only
// while there are some. An answer is at most a second old, and an agent is asked at most once a
// second. No caller waits longer than a second, however many agents don't answer.
package usage

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

const (
	every    = time.Second     // an answer is no older
	patience = time.Second     // an agent, and so a caller, has no longer
	again    = 5 * time.Second // after which an agent that failed is asked again
	atOnce   = 128             // agents that are asked
)

// An Agents asks them. Its methods are safe for concurrent use.
type Agents struct {
	dial  func(ctx context.Context, id runtime.RunnerID) (net.Conn, error)
	spawn func(func(context.Context)) error
	turns chan struct{}

	mu    sync.Mutex // guards what follows
	asked map[runtime.RunnerID]*question
}

// A question is what an agent was asked.
type question struct {
	began time.Time
	done  chan struct{} // closed when what follows is set
	usage agent.Usage
	at    time.Time // when it was asked; zero: it didn't answer
}

// New returns an Agents that reaches them by dial. Spawn starts a goroutine, whose context ends when
// that is to end.
func New(dial func(ctx context.Context, id runtime.RunnerID) (net.Conn, error), spawn func(func(context.Context)) error) *Agents {
	return &Agents{dial: dial, spawn: spawn, turns: make(chan struct{}, atOnce), asked: map[runtime.RunnerID]*question{}}
}

// Of returns what is used in a runner, and when that was so; the zero time where nobody can tell:
// the agent doesn't answer in time, can't be reached or is too old.
func (a *Agents) Of(ctx context.Context, id runtime.RunnerID) (agent.Usage, time.Time) {
	q := a.question(id)
	late := time.NewTimer(time.Until(q.began.Add(patience)))
	defer late.Stop()
	select {
	case <-q.done:
		return q.usage, q.at
	default:
	}
	select {
	case <-q.done:
		return q.usage, q.at
	case <-late.C:
	case <-ctx.Done():
	}
	return agent.Usage{}, time.Time{}
}

// question returns the last one to an agent, or a new one where that is too old.
func (a *Agents) question(id runtime.RunnerID) *question {
	a.mu.Lock()
	q := a.asked[id]
	isNew := q == nil
	if isNew {
		q = &question{began: time.Now(), done: make(chan struct{})}
		a.asked[id] = q
	}
	a.mu.Unlock()
	if isNew && a.spawn(func(ctx context.Context) { a.ask(ctx, id, q) }) != nil {
		close(q.done)
		a.forget(id)
	}
	return q
}

func (a *Agents) forget(id runtime.RunnerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.asked, id)
}

// ask asks an agent, and returns when it may be asked again.
func (a *Agents) ask(ctx context.Context, id runtime.RunnerID, q *question) {
	defer a.forget(id)
	keep := every
	if err := a.read(ctx, id, q); err != nil {
		keep = again
	}
	close(q.done)
	timer := time.NewTimer(time.Until(q.began.Add(keep)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// read reads an agent's answer.
func (a *Agents) read(ctx context.Context, id runtime.RunnerID, q *question) error {
	ctx, cancel := context.WithDeadline(ctx, q.began.Add(patience))
	defer cancel()
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	conn, err := a.dial(ctx, id)
	if err != nil {
		return err
	}
	at := time.Now()
	usage, err := agent.ReadUsage(ctx, conn)
	if err == nil {
		q.usage, q.at = usage, at
	}
	return err
}
