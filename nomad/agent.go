package nomad

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/nomad/state"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// An agentWait is the goroutine that waits for the agent of a starting runner.
type agentWait struct {
	allocation string
	stop       context.CancelFunc
	done       chan struct{} // closed when the goroutine has ended

	// Only the goroutine uses the fields below.
	delivered  bool      // the task has the agent
	deliveries int       // failed ones since the task was listed as running
	stuckSince time.Time // when Nomad's client first claimed that a task listed as running hasn't begun
	signals    int       // sent to the task since then
}

// awaitAgent begins to wait until the agent of a starting runner with a known allocation answers, unless
// that has begun. Then the runner is IDLE. The tries begin as soon as the allocation is known, because
// Nomad reports a running task a second late. The caller holds mu.
func (c *Cluster) awaitAgent(e *entry) {
	if e.removing || e.ready != nil || e.runner.State != runtime.RunnerStarting || e.allocation == "" {
		return
	}
	if e.waiting != nil && e.waiting.allocation == e.allocation {
		return
	}
	w := &agentWait{allocation: e.allocation, done: make(chan struct{})}
	stop, ok := c.group.Go(func(ctx context.Context) {
		defer close(w.done)
		c.awaitAgentIn(ctx, e, w)
	})
	if !ok {
		return
	}
	if e.waiting != nil {
		e.waiting.stop() // for an earlier allocation
	}
	w.stop = stop
	e.waiting = w
	c.counts.placed(e)
}

// awaitAgentIn delivers the agent if necessary, waits for its answer in one allocation, and stores that.
// It returns when that is done, ctx ends, or the runner is given up. Its pauses are those of pace.
func (c *Cluster) awaitAgentIn(ctx context.Context, e *entry, w *agentWait) {
	began := time.Now()
	for pause := c.pace.first(); backoff.Sleep(ctx, pause) == nil; pause = c.pace.next(time.Since(began)) {
		refused, err := c.deliver(ctx, e, w)
		if refused != "" {
			c.giveUp(e, w.allocation, refused)
			return
		}
		if err == nil {
			err = c.bridges.Keep(ctx, e.runner.ID, false) // succeeds when the agent has answered
		}
		if err == nil {
			c.pace.took(time.Since(began))
			err = c.makeReady(ctx, e, w.allocation)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		c.config.Logger.Debug("an agent doesn't answer yet; trying again", zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
		if c.wakeTask(ctx, e, w, err) {
			return
		}
	}
}

// maxDeliveries is how often the agent is streamed to a running task before its runner is given up.
const maxDeliveries = 12

// deliver streams the agent if the task doesn't get it otherwise. refused says why no further try can help.
func (c *Cluster) deliver(ctx context.Context, e *entry, w *agentWait) (refused string, err error) {
	c.runners.mu.Lock()
	access, node, runs := e.access, e.node, e.runs && e.allocation == w.allocation
	c.runners.mu.Unlock()
	if access.Stream == "" || w.delivered {
		return "", nil
	}
	err = c.delivery.To(ctx, node, w.allocation, access.Task, access.Stream)
	w.delivered = err == nil
	refusal, refuses := errors.AsType[*connection.RefusalError](err)
	switch {
	case refuses:
		return refusal.Error(), err
	// Until its task is listed as running, a failure is expected and doesn't count.
	case err != nil && runs:
		if w.deliveries++; w.deliveries == maxDeliveries {
			return fmt.Sprintf("the agent could not be streamed to it in %d tries: %v", w.deliveries, c.nomad.Redact(err)), err
		}
	}
	return "", err
}

func (c *Cluster) makeReady(ctx context.Context, e *entry, allocation string) error {
	answered := time.Now()
	c.runners.mu.Lock()
	r := state.Record{Environment: e.runner.Environment.ID, Allocation: allocation, Restarts: e.restarts}
	c.runners.mu.Unlock()
	// The variable comes before the state: a server that takes over must find every runner ready
	// that this one has offered to a claim.
	stored, done, err := c.records.Write(ctx, e.runner.ID, r)
	if err != nil {
		return err
	}
	c.runners.mu.Lock()
	if e.ready != nil { // a listing found it first, and it may be claimed already
		c.counts.answered(e, answered)
		c.runners.mu.Unlock()
		return nil
	}
	if !done {
		c.runners.mu.Unlock()
		return runtime.Errorf(runtime.CodeConflict, "runner %s has a variable already", e.runner.ID)
	}
	if e.removing || e.allocation != allocation {
		c.runners.mu.Unlock()
		return nil // a listing has newer information
	}
	e.ready = &listing.Readiness{Allocation: allocation, Restarts: r.Restarts, Index: stored.Created, At: stored.At}
	e.variable = stored.Index
	c.counts.answered(e, answered)
	if e.advance(runtime.RunnerIdle) {
		e.runner.Message = ""
	}
	c.runners.changed(e)
	env := e.runner.Environment.ID
	c.runners.mu.Unlock()
	c.changes.Send(env)
	return nil
}

// An alloc exec that Nomad's client starts in the moment in which a task begins can make the client
// believe permanently that the task hasn't begun. In 1.11.3 the answer is made from a copy of the
// task's state, and the copy is then stored as the state. Any later event of the task corrects it.

// After stuckAfter, and at most stuckSignals times, the server sends the task a signal to cause
// such an event. If Nomad is slow, a try takes seconds.
const (
	stuckAfter   = 3 * time.Second
	stuckSignals = 3
)

// wakeTask handles the error of a try. If Nomad's client claims that a task hasn't begun, but the
// task is listed as running, it sends the task a harmless signal. After a while it gives up the
// runner and returns true. A task whose image is being pulled isn't listed as running, however long
// that takes.
func (c *Cluster) wakeTask(ctx context.Context, e *entry, w *agentWait, err error) bool {
	if !strings.Contains(err.Error(), "not started yet") {
		return false
	}
	c.runners.mu.Lock()
	begun, task := e.runs && e.allocation == w.allocation, e.access.Task
	c.runners.mu.Unlock()
	switch {
	case !begun:
		w.stuckSince, w.signals = time.Time{}, 0
		return false
	case w.signals >= stuckSignals && time.Since(w.stuckSince) > stuckAfter:
		return c.giveUp(e, w.allocation, "its task runs, but Nomad's client believes that it hasn't begun, and executes nothing in it")
	}
	w.stuckSince = cmp.Or(w.stuckSince, time.Now())
	w.signals++
	err = c.nomad.Attempt(ctx, func(ctx context.Context) error {
		return c.nomad.API().Allocations().Signal(&api.Allocation{ID: w.allocation}, connection.Query(ctx), task, "SIGCONT")
	})
	if err != nil && ctx.Err() == nil { // most likely the policy lacks alloc-lifecycle
		c.config.Logger.Warn("Nomad's client doesn't notice that a task runs, and it can't be corrected by a signal: check that the token's policy has alloc-lifecycle",
			zap.String("runner", string(e.runner.ID)), zap.Error(c.nomad.Redact(err)))
	}
	return false
}

// giveUp gives up a starting runner, and reports whether it did. It doesn't if a listing found the
// runner ready meanwhile, since it may be claimed.
func (c *Cluster) giveUp(e *entry, allocation, why string) bool {
	c.runners.mu.Lock()
	gone := e.allocation == allocation && e.ready == nil && e.advance(runtime.RunnerGone)
	if gone {
		e.runner.GoneReason, e.runner.Message = runtime.GoneStartFailed, why
		c.counts.gone(e)
		c.runners.changed(e)
	}
	env := e.runner.Environment.ID
	c.runners.mu.Unlock()
	if gone {
		c.changes.Send(env)
	}
	return gone
}

// A pace decides when to try whether a runner's agent answers. No event reports that, and Nomad
// reports a running task a second late. A try costs 4 ms of CPU time, ours and Nomad's, which
// concurrent starts take from each other. So the first try comes after half the time of the fastest
// recent start, and each pause is a sixth of the time that has passed. The zero value is ready. Its
// methods are safe for concurrent use.
type pace struct {
	mu     sync.Mutex // guards latest
	latest []time.Duration
}

// The parameters of a pace.
const (
	paceOf       = 4                      // number of recent starts that count
	firstTry     = 20 * time.Millisecond  // without any recent start
	lastFirstTry = 2 * time.Second        // the recent starts may have pulled their image
	leastPause   = 10 * time.Millisecond  // between tries
	mostPause    = 500 * time.Millisecond // between tries: pulling an image may take minutes
)

func (p *pace) first() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latest) == 0 {
		return firstTry
	}
	return min(slices.Min(p.latest)/2, lastFirstTry)
}

// next returns the next pause, given the time since the first try. It has jitter, so that runners that
// started together aren't tried together.
func (p *pace) next(since time.Duration) time.Duration {
	pause := min(max(since/6, leastPause), mostPause)
	return pause*3/4 + rand.N(pause/2)
}

func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latest = append(p.latest, d)
	p.latest = p.latest[max(0, len(p.latest)-paceOf):]
}
