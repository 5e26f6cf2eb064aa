package session

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// AgentLate is by how much an agent may be late with what it has to end. Then its runner
// goes.
const AgentLate = 5 * time.Second

const (
	checkEvery = 100 * time.Millisecond // limits
	agentAway  = time.Minute            // by which an agent may be later where it can't be reached
)

// check looks after an execution from outside the agent, which may be hostile.
func (o *owner) check(ctx context.Context, now time.Time) {
	x := o.Execution()
	o.checkHost(ctx, x, now)
	if o.record.stall.excuses(now) {
		return
	}
	began := x.Marks.StartedAt
	if began.IsZero() {
		began = x.Marks.QueuedAt
	}
	if x.TimeLimit > 0 && now.Sub(began) > x.TimeLimit+AgentLate {
		o.kill(ctx, runtime.OutcomeTimeLimit)
	}
	o.reach.look(o.tries.attempt)
	if o.killed.noted && !o.killed.burnt && o.went.reason == "" && o.reach.late(o.killed.by, now) {
		o.burn(ctx)
	}
	if stream, _ := o.stream.Get(); stream != nil && o.went.reason != "" && now.Sub(o.went.at) > goneGrace {
		_ = stream.Close()
	}
}

// checkHost has a worker store, once, that the execution runs, and ask the host what it counted: whether the
// execution ran into the limit of processes, and what it used.
func (o *owner) checkHost(ctx context.Context, x runtime.Execution, now time.Time) {
	store := x.State == runtime.ExecutionRunning && !o.stored                           // only now: most executions are over before, and cost no second write
	count := o.begin.Counted && (!o.crowded.Load() || now.Sub(o.polled) >= time.Second) // many in one runner look less often
	if o.checking || !store && !count {
		return
	}
	o.checking = true
	if count {
		o.polled = now
	}
	o.workers.Go(func() {
		stored := store && o.host.Store.PutExecution(ctx, x) == nil
		var counted runtime.Evidence
		if count {
			counted, _ = o.host.Cluster.Evidence(ctx, o.runner.ID) // on an error, nothing is known to have risen
		}
		o.report(func() {
			o.checking, o.stored = false, o.stored || stored
			o.counted = max(o.counted, counted.CPU)
			exceeded := counted.ProcessLimitHits > o.begin.Before.ProcessLimitHits
			if exceeded && !o.crowded.Load() { // else nobody can tell whose processes they are: the limit itself holds
				o.kill(ctx, runtime.OutcomeProcessLimit)
			}
		})
	})
}

// burn removes the runner of an execution whose agent didn't keep the time limit, or
// didn't end what it was told to end.
func (o *owner) burn(ctx context.Context) {
	o.killed.burnt = true
	o.host.Logger.Warn("an agent didn't end an execution; its runner goes",
		zap.String("execution", string(o.Execution().ID)), zap.String("runner", string(o.runner.ID)))
	o.workers.Go(func() { o.release(ctx, o.pool) })
}

// A reach says since when no stream to an agent can be opened.
type reach struct {
	away time.Time // since when; zero: one was opened
	back time.Time // when one was opened again
}

// look takes in how far an attempt has come; nil: there was none.
func (r *reach) look(a *attempt) {
	switch {
	case a == nil:
	case a.dialed.Load() != 0:
		if back := a.began.Add(time.Duration(a.dialed.Load())); !r.away.IsZero() && back.Sub(r.away) > checkEvery { // an agent that lets every stream be opened has no such excuse
			r.back = back
		}
		r.away = time.Time{}
	case r.away.IsZero():
		r.away = a.began
	}
}

// late reports whether an agent should have ended by a time what it was told to end. One
// that couldn't be reached, since the cluster's own ways to it were broken, may have
// ended it long ago, and has its time to say so; but not for ever.
func (r *reach) late(by, now time.Time) bool {
	if now.After(by.Add(agentAway)) {
		return true
	}
	return now.After(by) && r.away.IsZero() && now.After(r.back.Add(AgentLate))
}
