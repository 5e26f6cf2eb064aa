package session

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
)

// AgentLate is how late an agent may be in ending an execution. After that its runner is removed.
const AgentLate = 5 * time.Second

const (
	checkEvery = 100 * time.Millisecond // of the limits
	agentAway  = time.Minute            // additional delay for an agent that can't be reached
)

// check enforces an execution's limits from outside the agent, which may be hostile.
func (o *loop) check(ctx context.Context, now time.Time) {
	x := o.Execution()
	o.checkHost(ctx, x, now)
	// During a long write, nothing is read from the agent, so its reports may be here already.
	if o.record.stall.excuses(now) {
		return
	}
	// An agent that never reports a start doesn't escape the time limit.
	began := x.Timestamps.StartedAt
	if began.IsZero() {
		began = x.Timestamps.QueuedAt
	}
	if x.TimeLimit > 0 && o.timeline(now).Sub(began) > x.TimeLimit+AgentLate {
		o.kill(ctx, runtime.OutcomeTimeLimit)
	}
	o.reach.observe(o.tries.attempt)
	if o.killed.noted && !o.killed.timedOut && o.exit.reason == "" && o.reach.late(o.killed.by, now) {
		o.timeOut(ctx)
	}
	// No more output is expected. The next attempt fails, and attempted uses the reason in exit.
	if stream, _ := o.stream.Get(); stream != nil && o.exit.reason != "" && now.Sub(o.exit.at) > goneGrace {
		_ = stream.Close()
	}
}

// checkHost stores, in a worker, that the execution runs, and drops from the store what the agent already
// has. It also reads the host's counters, to see whether the execution reached the limit of processes, and how
// much CPU time it used.
func (o *loop) checkHost(ctx context.Context, x runtime.Execution, now time.Time) {
	// The start is stored only here, because most executions end earlier and save this write.
	var start []byte
	var inputEnd *int64
	store := x.State == runtime.ExecutionRunning && !o.settled
	if store {
		start, inputEnd = o.rest()
		store = !o.stored || start != nil
	}
	// Executions that share a runner are counted less often.
	count := o.begin.Counted && (!o.shared.Load() || now.Sub(o.polled) >= time.Second)
	if o.checking || !store && !count {
		return
	}
	o.checking = true
	if count {
		o.polled = now
	}
	o.workers.Go(func() {
		stored := store && o.host.Store.PutExecution(ctx, x, start, inputEnd) == nil
		var counted runtime.Evidence
		if count {
			counted, _ = o.host.Cluster.Evidence(ctx, o.runner.ID) // an error leaves all counters at 0
		}
		o.report(func() {
			o.checking, o.stored, o.settled = false, o.stored || stored, o.settled || stored && start != nil
			o.counted = max(o.counted, counted.CPU)
			exceeded := counted.ProcessLimitHits > o.begin.Before.ProcessLimitHits+agent.MostRefused
			// Processes of a shared runner can't be attributed; the limit itself still holds.
			if exceeded && !o.shared.Load() {
				o.kill(ctx, runtime.OutcomeProcessLimit)
			}
		})
	})
}

// timeOut removes the runner of an execution that its agent didn't end, although it had to.
func (o *loop) timeOut(ctx context.Context) {
	o.killed.timedOut = true
	o.host.Logger.Warn("an agent didn't end an execution in time; removing its runner",
		zap.String("execution", string(o.Execution().ID)), zap.String("runner", string(o.runner.ID)))
	o.workers.Go(func() { o.release(ctx, o.pool) })
}

// A reach records since when no stream to an agent can be opened.
type reach struct {
	away time.Time // since when; the zero time means reachable
	back time.Time // when a stream was opened again
}

// observe updates the reach with the progress of an attempt; nil means there was none.
func (r *reach) observe(a *attempt) {
	switch {
	case a == nil:
	case a.dialed.Load() != 0:
		// A gap shorter than checkEvery is no excuse.
		if back := a.began.Add(time.Duration(a.dialed.Load())); !r.away.IsZero() && back.Sub(r.away) > checkEvery {
			r.back = back
		}
		r.away = time.Time{}
	case r.away.IsZero():
		r.away = a.began
	}
}

// late reports whether an agent should have ended an execution by now. An agent that was unreachable,
// because the cluster's ways to it were broken, may have ended it long ago. It gets extra time to report
// that, but not unlimited time.
func (r *reach) late(by, now time.Time) bool {
	if now.After(by.Add(agentAway)) {
		return true
	}
	return now.After(by) && r.away.IsZero() && now.After(r.back.Add(AgentLate))
}
