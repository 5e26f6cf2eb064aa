package usage

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/syncs"
)

const (
	every    = time.Second      // interval between questions to an agent
	again    = 5 * time.Second  // interval after a failed question
	patience = time.Second      // limit for an agent's answer, and so for a caller
	turnIn   = patience / 2     // limit for waiting for a turn
	kept     = 10 * time.Second // maximum age of an answer
	atOnce   = 128              // agents asked concurrently
	ofTenant = atOnce / 4       // of these, agents of one tenant
)

// Agents asks agents what their runners and executions use, for any number of callers and only while there are
// some. It asks an agent at most once a second. A figure is at most one second old, or ten seconds if the agent is
// slow. No caller waits longer than a second, no matter how many agents don't answer. Its methods are safe for
// concurrent use.
type Agents struct {
	// dial connects to a runner's agent.
	dial  func(ctx context.Context, id runtime.RunnerID) (net.Conn, error)
	spawn func(func(context.Context)) error // starts a goroutine; the engine waits for it
	slots *fairqueue.TenantSlots            // for questions

	mu    sync.Mutex // guards asked
	asked map[runtime.RunnerID]*question
}

type question struct {
	began time.Time // from which its time limits count
	last  answer    // to an earlier question

	done   chan struct{} // closed when the fields below are set
	answer answer        // last, if none came
	again  time.Time     // when the agent may be asked again
}

type answer struct {
	usage agent.Usage
	at    time.Time
}

// NewAgents returns an Agents that reaches agents by dial. spawn starts a goroutine and provides the
// context that ends it.
func NewAgents(dial func(ctx context.Context, id runtime.RunnerID) (net.Conn, error), spawn func(func(context.Context)) error) *Agents {
	return &Agents{dial: dial, spawn: spawn, slots: fairqueue.NewTenantSlots(atOnce, ofTenant), asked: map[runtime.RunnerID]*question{}}
}

// Usage returns what a runner of a tenant uses, and when that was measured. The time is zero if the
// agent hasn't answered for ten seconds, is too old, or is unreachable.
func (a *Agents) Usage(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID) (agent.Usage, time.Time) {
	q := a.question(id, tenant)
	found := q.last
	select {
	case <-q.done:
	case <-time.After(time.Until(q.began.Add(patience))):
	case <-ctx.Done():
	}
	if syncs.Closed(q.done) { // an answer that has arrived counts even if the time is up
		found = q.answer
	}
	if time.Since(found.at) > kept {
		return agent.Usage{}, time.Time{}
	}
	return found.usage, found.at
}

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
	if a.spawn(func(ctx context.Context) { a.query(ctx, id, tenant, q) }) == nil {
		a.asked[id] = q
	} else {
		close(q.done)
	}
	return q
}

func (q *question) over() bool { return syncs.Closed(q.done) && !time.Now().Before(q.again) }

func (a *Agents) query(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID, q *question) {
	found, err := a.read(ctx, id, tenant, q.began)
	switch {
	case err == nil:
		q.answer, q.again = found, q.began.Add(every)
	case errors.Is(err, errNoTurn): // the agent wasn't asked
		q.answer = q.last
	default:
		q.answer, q.again = q.last, q.began.Add(again)
	}
	close(q.done)
	time.AfterFunc(kept, func() { a.forget(id, q) })
}

// forget deletes q as the runner's current question, unless another has replaced it.
func (a *Agents) forget(id runtime.RunnerID, q *question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[id] == q {
		delete(a.asked, id)
	}
}

func (a *Agents) read(ctx context.Context, id runtime.RunnerID, tenant runtime.TenantID, began time.Time) (found answer, err error) {
	ctx, cancel := context.WithDeadline(ctx, began.Add(patience))
	defer cancel()
	turn, cancelTurn := context.WithDeadlineCause(ctx, began.Add(turnIn), errNoTurn)
	defer cancelTurn()
	err = a.slots.Do(turn, tenant, func() error {
		conn, err := a.dial(ctx, id)
		if err != nil {
			return err
		}
		found.at = time.Now()
		found.usage, err = agent.ReadUsage(ctx, conn)
		return err
	})
	return found, err
}

var errNoTurn = errors.New("too many other agents are being asked")
