// Package usage asks agents what their runners use, for any number of callers and only while there
// are some. It asks an agent once a second at most. A figure is one second old at most, or ten if the
// agent is slow. No caller waits longer than a second, however many agents don't answer.
package usage

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

const (
	every    = time.Second      // after which an agent is asked again
	again    = 5 * time.Second  // after which an agent that failed is asked again
	patience = time.Second      // an agent, and so a caller, has no longer
	turnIn   = patience / 2     // how long a question waits for its turn
	kept     = 10 * time.Second // how long an answer is returned until a newer one comes
	atOnce   = 128              // agents that are asked
	ofTenant = atOnce / 4       // of those
)

// An Agents asks them. Its methods are safe for concurrent use.
type Agents struct {
	dial  func(ctx context.Context, id runtime.RunnerID) (net.Conn, error)
	spawn func(func(context.Context)) error
	turns chan struct{}

	mu    sync.Mutex // guards what follows
	asked map[runtime.RunnerID]*question
	lines map[runtime.TenantID]*line
}

// A question is what an agent was asked.
type question struct {
	began time.Time
	last  answer // to an earlier one

	done   chan struct{} // closed when what follows is set
	answer answer        // the last one if none came
	again  time.Time     // when the agent may be asked again
}

// An answer is what an agent said when it was asked; a zero time: nothing.
type answer struct {
	usage agent.Usage
	at    time.Time
}

// A line is where the questions of one tenant wait.
type line struct {
	turns   chan struct{}
	waiting int // or asked
}

// New returns an Agents that reaches them by dial. Spawn starts a goroutine, whose context ends when
// that is to end.
func New(dial func(ctx context.Context, id runtime.RunnerID) (net.Conn, error), spawn func(func(context.Context)) error) *Agents {
	return &Agents{
		dial: dial, spawn: spawn, turns: make(chan struct{}, atOnce),
		asked: map[runtime.RunnerID]*question{}, lines: map[runtime.TenantID]*line{},
	}
}

// Of returns what a runner of a tenant uses, and when it was measured. The time is zero if the agent
// didn't answer for ten seconds, is too old or can't be reached.
func (a *Agents) Of(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID) (agent.Usage, time.Time) {
	q := a.question(id, tenant)
	found := q.last
	late := time.NewTimer(time.Until(q.began.Add(patience)))
	defer late.Stop()
	select {
	case <-q.done:
		found = q.answer
	default:
		select {
		case <-q.done:
			found = q.answer
		case <-late.C:
		case <-ctx.Done():
		}
	}
	if time.Since(found.at) > kept {
		return agent.Usage{}, time.Time{}
	}
	return found.usage, found.at
}

// question returns the last one to an agent, or asks it anew.
func (a *Agents) question(id runtime.RunnerID, tenant runtime.TenantID) *question {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.asked[id]
	if before != nil && !before.over() {
		return before
	}
	q := &question{began: time.Now(), done: make(chan struct{})}
	if before != nil {
		q.last = before.answer
	}
	if a.spawn(func(ctx context.Context) { a.ask(ctx, id, tenant, q) }) == nil {
		a.asked[id] = q
	} else {
		close(q.done)
	}
	return q
}

// over reports whether the agent may be asked again.
func (q *question) over() bool {
	select {
	case <-q.done:
		return !time.Now().Before(q.again)
	default:
		return false
	}
}

// ask asks an agent.
func (a *Agents) ask(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID, q *question) {
	found, err := a.read(ctx, id, tenant, q.began)
	switch {
	case err == nil:
		q.answer, q.again = found, q.began.Add(every)
	case errors.Is(err, errNoTurn): // it wasn't asked
		q.answer = q.last
	default:
		q.answer, q.again = q.last, q.began.Add(again)
	}
	close(q.done)
	time.AfterFunc(kept, func() { a.forget(id, q) })
}

func (a *Agents) forget(id runtime.RunnerID, q *question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[id] == q {
		delete(a.asked, id)
	}
}

// read reads an agent's answer.
func (a *Agents) read(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID, began time.Time) (answer, error) {
	ctx, cancel := context.WithDeadline(ctx, began.Add(patience))
	defer cancel()
	turn, cancel := context.WithDeadline(ctx, began.Add(turnIn))
	defer cancel()
	own := a.line(tenant)
	defer a.leave(tenant, own)
	for _, turns := range []chan struct{}{own.turns, a.turns} {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-turn.Done():
			return answer{}, errNoTurn
		}
	}
	conn, err := a.dial(ctx, id)
	if err != nil {
		return answer{}, err
	}
	at := time.Now()
	usage, err := agent.ReadUsage(ctx, conn)
	return answer{usage, at}, err
}

var errNoTurn = errors.New("others are asked")

// line returns the tenant's, which the caller leaves.
func (a *Agents) line(tenant runtime.TenantID) *line {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := a.lines[tenant]
	if own == nil {
		own = &line{turns: make(chan struct{}, ofTenant)}
		a.lines[tenant] = own
	}
	own.waiting++
	return own
}

func (a *Agents) leave(tenant runtime.TenantID, own *line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own.waiting--; own.waiting == 0 {
		delete(a.lines, tenant)
	}
}
