package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const (
	killGrace  = 300 * time.Millisecond // from SIGTERM to SIGKILL of a cancelled execution
	goneGrace  = 200 * time.Millisecond // for the last output of a runner that is gone
	firstPause = 20 * time.Millisecond  // between attempts to reach the agent
	lastPause  = 2 * time.Second        // each pause is twice the one before, up to this
)

// A loop is the state of Run. Only that goroutine uses it.
type loop struct {
	*Session
	pool    Pool
	workers sync.WaitGroup // Run waits for them
	reports chan func()    // of workers
	over    chan struct{}  // closed when reports are no longer received
	end     *result        // nil means not ended

	tries    tries
	killed   kill
	reach    reach
	exit     runnerExit
	checking bool          // a worker is checking the host's counters
	counted  time.Duration // CPU time of the runner, as last counted by the host
	polled   time.Time     // when that was
	stored   bool          // RUNNING is stored
	settled  bool          // the store has only what rest returns
}

// tries are the attempts, which run one after the other.
type tries struct {
	attempt  *attempt         // the running one, or the last one
	known    bool             // the agent knows the execution, so attempts attach
	again    <-chan time.Time // fires for the next attempt
	pauses   backoff.Backoff  // before that
	progress int64            // bytes received when pauses was last reset
}

// pause schedules the next attempt. Pauses grow until output arrives.
func (t *tries) pause(received int64) {
	if received > t.progress {
		t.pauses.Reset()
		t.progress = received
	}
	t.again = time.After(t.pauses.Next())
}

// pauses returns the pauses between attempts, and between tries to store an end.
func pauses() backoff.Backoff { return backoff.Backoff{First: firstPause, Last: lastPause} }

// A kill is why an execution is being ended, and how far that is.
type kill struct {
	reason   runtime.Outcome // "" means not being ended
	by       time.Time       // deadline for it to have ended
	noted    bool            // the reason is stored, so the agent may be asked to kill
	timedOut bool            // the deadline passed: the runner is being removed
}

type runnerExit struct {
	at     time.Time
	reason runtime.GoneReason // "" means it exists
}

type result struct {
	facts   Facts
	exit    agent.Exit
	exited  bool          // the agent reported the exit
	counted time.Duration // otherwise: CPU time of the runner, as last counted by the host
}

// Run starts or resumes the execution, follows it to its end, and stores that. Call it once. If ctx ends
// first, it returns early and the next server continues. A nil pool means that the runner ended
// while no server was running. Run waits for its workers.
func (s *Session) Run(ctx context.Context, pool Pool) {
	defer closeOnce(s.noted)
	end := &result{}
	if pool == nil {
		end.facts.Gone = s.recovered.gone
	} else if end = s.lead(ctx, pool); end == nil {
		return
	}
	exit, before := end.exit, s.begin.Before.CPU
	// Charge the agent's report or, without one, the host's count.
	if end.exited {
		s.host.charges.leave(s.runner.ID, new(exit.User+exit.System), before, 0)
	} else {
		exit.User = s.host.charges.leave(s.runner.ID, nil, before, end.counted)
	}
	usage := runtime.Usage{
		Wall: exit.Wall, User: exit.User, System: exit.System, PeakMemory: exit.PeakMemory, OutputBytes: s.record.received.Load(),
		PeakProcesses: exit.PeakProcesses, BytesRead: exit.BytesRead, BytesWritten: exit.BytesWritten, OOMKills: end.facts.OwnOOMKills(),
	}
	// Where the kernel counts only processes, pages of files that they share can exceed the limit.
	if limit := int64(end.facts.Limits.MemoryMiB) << 20; limit > 0 {
		usage.PeakMemory = min(usage.PeakMemory, limit)
	}
	end.facts.PeakMemory = usage.PeakMemory
	s.finish(ctx, pool, Finished(s.Execution(), Decide(end.facts), usage, s.timeline(time.Now())))
}

// lead returns how the execution ended; nil means ctx ended first.
func (s *Session) lead(ctx context.Context, pool Pool) *result {
	o := &loop{Session: s, pool: pool, reports: make(chan func()), over: make(chan struct{}), tries: tries{pauses: pauses()}}
	// Deferred calls run in reverse order: over is closed first, so no worker blocks in report.
	defer o.workers.Wait()
	defer close(o.over)
	o.recall(time.Now())
	o.try(ctx, time.Now())
	tick := time.Tick(checkEvery)
	for o.end == nil {
		select {
		case <-ctx.Done():
			return nil
		case report := <-o.reports:
			report()
		case <-o.tries.again:
			o.try(ctx, time.Now())
		case outcome := <-s.kills:
			o.kill(ctx, outcome)
		case reason := <-s.goes:
			o.gone(reason, time.Now())
		case now := <-tick:
			o.check(ctx, now)
		}
	}
	return o.end
}

func (o *loop) recall(now time.Time) {
	if o.recovered == nil {
		return
	}
	o.tries.known = true
	if o.recovered.gone != "" {
		o.gone(o.recovered.gone, now)
	}
	if o.recovered.killed != "" {
		// The agent gets the whole time again, because perhaps no server has asked it yet.
		o.killed = kill{reason: o.recovered.killed, by: now.Add(AgentLate), noted: true}
		close(o.noted)
	}
}

func (o *loop) report(f func()) {
	select {
	case o.reports <- f:
	case <-o.over:
	}
}

// try opens a stream in a worker and copies its events.
func (o *loop) try(ctx context.Context, now time.Time) {
	a := &attempt{Session: o.Session, began: now, attach: o.tries.known}
	o.tries.attempt = a
	o.workers.Go(func() {
		a.run(ctx, func(stream *agent.Session) { o.report(func() { o.join(stream) }) })
		o.report(func() { o.attempted(ctx, time.Now()) })
	})
}

func (o *loop) join(stream *agent.Session) {
	o.tries.known = true
	o.stream.Set(stream)
	o.sendKill()
}

func (o *loop) attempted(ctx context.Context, now time.Time) {
	a := o.tries.attempt
	o.reach.observe(a)
	refused, isRefusal := errors.AsType[*agent.Error](a.err)
	facts := Facts{Killed: o.killed.reason, Limits: o.limits()}
	// The order of the cases matters: a reported exit counts even if the runner is gone.
	switch {
	case a.exited:
		a.weigh(&facts)
	case o.exit.reason != "" && a.err != nil:
		facts.Gone, facts.TimedOut = o.exit.reason, o.killed.timedOut
	case isRefusal && a.attach && o.neverBegun(refused):
		// The recorded execution never reached the agent, so it can be started now.
		o.tries.known = false
		o.try(ctx, now)
		return
	case isRefusal && a.attach && o.isBehind(refused):
		o.catchUp(ctx)
		return
	case isRefusal && (a.attach || o.recovered != nil && refused.Field == "id"):
		// The agent doesn't know it, or no longer does: LOST.
	case isRefusal:
		facts.Refused, facts.ShellCode = refused.Error(), shellCode(refused)
	default:
		// The stream broke or could not be opened. The next attempt continues after a pause.
		o.stream.Set(nil)
		o.tries.pause(o.record.received.Load())
		return
	}
	o.conclude(facts, a, now)
}

// shellCode returns the exit code of a shell for a command that can't be started: 127 if the command
// or its directory doesn't exist, 126 if it can't be executed. 0 means the caller isn't the cause.
func shellCode(refused *agent.Error) int {
	if refused.Field != "argv" && refused.Field != "dir" {
		return 0
	}
	switch refused.Code {
	case agent.ErrNotFound:
		return 127
	case agent.ErrDenied, agent.ErrWrongType, agent.ErrInvalid:
		return 126
	}
	return 0
}

// conclude ends the execution. If its agent couldn't report its usage, because it was starved or its
// runner was removed, the host's counters are used. Otherwise a program could avoid being charged.
func (o *loop) conclude(facts Facts, a *attempt, now time.Time) {
	o.end = &result{facts: facts, exit: a.exit, exited: a.exited}
	if a.exited || facts.Refused != "" {
		return
	}
	o.end.counted = o.counted
	if a.evidence != nil {
		o.end.counted = max(o.counted, a.evidence.CPU)
	}
	x := o.Execution()
	if x.Timestamps.StartedAt.IsZero() {
		return
	}
	o.end.exit.Wall = max(0, o.timeline(now).Sub(x.Timestamps.StartedAt))
	if x.TimeLimit > 0 { // the server may have been down
		o.end.exit.Wall = min(o.end.exit.Wall, x.TimeLimit+AgentLate+agentAway)
	}
}

// catchUp skips output that the agent no longer has, in a worker, and tries again.
func (o *loop) catchUp(ctx context.Context) {
	o.workers.Go(func() {
		caughtUp := o.record.catchUp(ctx)
		o.report(func() {
			if !caughtUp {
				// Facts without an exit mean LOST.
				o.conclude(Facts{Killed: o.killed.reason, Limits: o.limits()}, o.tries.attempt, time.Now())
				return
			}
			o.try(ctx, time.Now())
		})
	})
}

// kill stores in a worker why the execution is killed, and then asks the agent to kill it.
func (o *loop) kill(ctx context.Context, outcome runtime.Outcome) {
	// The first reason counts.
	if o.killed.reason != "" {
		return
	}
	o.killed.reason = outcome
	id := o.Execution().ID
	o.workers.Go(func() {
		// The write outlives ctx, so that a stopping server still stores the reason.
		err := o.host.Store.NoteKilled(context.WithoutCancel(ctx), id, outcome)
		if runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
			return // another server leads
		}
		// A kill isn't given up because its reason can't be stored.
		if err != nil {
			o.host.Logger.Warn("the reason for killing an execution could not be stored", zap.String("execution", string(id)), zap.Error(err))
		}
		o.report(func() {
			o.killed.noted, o.killed.by = true, time.Now().Add(AgentLate)
			close(o.noted)
			o.sendKill()
		})
	})
}

// sendKill asks the agent in a worker to kill the execution, if there is a stream. If the stream breaks,
// join asks again on the next one.
func (o *loop) sendKill() {
	stream, _ := o.stream.Get()
	if stream == nil || !o.killed.noted {
		return
	}
	grace := time.Duration(0)
	if o.killed.reason == runtime.OutcomeCancelled {
		grace = killGrace
	}
	o.workers.Go(func() { _ = stream.Kill(grace) })
}

// gone records that the runner is being removed or has ended. The first reason counts.
func (o *loop) gone(reason runtime.GoneReason, now time.Time) {
	if o.exit.reason == "" {
		o.exit = runnerExit{at: now, reason: reason}
	}
}

func (o *loop) limits() Limits {
	x, resources := o.Execution(), o.runner.Environment.Resources
	lease := time.Duration(0)
	if o.lapsed.Load() {
		lease = x.Lease
	}
	return Limits{
		Lease: lease, Time: x.TimeLimit, CPU: x.Limits.CPU, FileSize: x.Limits.FileSize, Output: x.OutputLimit,
		MemoryMiB: resources.MemoryMiB, Processes: resources.Processes,
	}
}

// finish compares the output, stores the end, and only then publishes it, so that a published outcome
// never changes. It retries until ctx ends.
func (s *Session) finish(ctx context.Context, pool Pool, x runtime.Execution) {
	log := s.record.log
	size := log.Size()
	x.LogBytes, x.Hint = &size, hintAbout(x, s.runner.Environment, s.record.tail)
	for pauses := pauses(); ; {
		var kept int64
		comparing, compared := lasting(ctx, comparedWithin)
		err := s.compare(comparing, &x)
		compared()
		if err != nil && ctx.Err() != nil {
			return // the next server compares
		}
		if err == nil { // a write that has begun is completed even if the server is stopping
			kept, err = s.host.Store.FinishExecution(context.WithoutCancel(ctx), x, log.Bytes())
		}
		if err == nil {
			// The quota counts the log already. This adds the execution's row and its search terms.
			s.host.Quota.Add(kept - log.Bytes())
			break
		}
		if runtime.CodeOf(err) == runtime.CodeClusterUnavailable {
			return // the next leader ends it
		}
		s.host.Logger.Error("the end of an execution could not be stored; trying again", zap.String("execution", string(x.ID)), zap.Error(err))
		if pauses.Wait(ctx) != nil {
			return // the next server ends it
		}
	}
	s.kept.Free()
	s.host.Ended(s, x) // before callers see the end: their next execution then has the runner alone
	// From here on callers see the end.
	s.now.Store(&x)
	if err := log.End(); err != nil {
		s.host.Logger.Warn("an output log could not be closed", zap.String("execution", string(x.ID)), zap.Error(err))
	}
	// Callers may still wait for a start that never came.
	closeOnce(s.started)
	close(s.done)
	if stream, _ := s.stream.Get(); stream != nil {
		_ = stream.Settled() // if this is lost, the next attach repeats it
		_ = stream.Close()
	}
	if pool == nil {
		return
	}
	pool.Done(ctx, x.RunnerID)
	if x.Release {
		s.release(ctx, pool)
	}
}

// release releases the runner. It logs an error unless ctx has ended.
func (s *Session) release(ctx context.Context, pool Pool) {
	if _, err := pool.Release(ctx, s.runner.ID); err != nil && ctx.Err() == nil {
		s.host.Logger.Warn("runner could not be released; its inactivity timeout will end it", zap.String("runner", string(s.runner.ID)), zap.Error(err))
	}
}
