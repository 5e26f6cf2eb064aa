package engine

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// guard looks after an execution from outside the agent, which may be hostile,
// until over is closed.
func (s *session) guard(ctx context.Context, over <-chan struct{}) {
	tick := time.NewTicker(guardTick)
	defer tick.Stop()
	stored := false
	for {
		select {
		case <-over:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		x := s.execution()
		if x.State == runtime.ExecutionRunning && !stored {
			// Only now: most executions are over before, and cost no second write.
			stored = s.engine.store.PutExecution(ctx, x) == nil
		}
		s.watchProcesses(ctx)
		s.watchTime(ctx, x)
		s.watchRunner()
	}
}

// watchProcesses ends an execution that ran into the limit of processes.
func (s *session) watchProcesses(ctx context.Context) {
	if s.crowded.Load() || !s.begin.Counted {
		return // nobody can tell whose processes they are: the limit itself holds
	}
	evidence, err := s.engine.cluster.Evidence(ctx, s.runner.ID)
	if err == nil && evidence.ProcessLimitHits > s.begin.Before.ProcessLimitHits {
		s.kill(ctx, runtime.OutcomeProcessLimit)
	}
}

// watchTime removes the runner of an execution whose agent didn't keep the
// time limit, or didn't end what it was told to end.
func (s *session) watchTime(ctx context.Context, x runtime.Execution) {
	began := x.Marks.StartedAt
	if began.IsZero() {
		began = x.Marks.QueuedAt
	}
	if x.TimeLimit > 0 && time.Since(began) > x.TimeLimit+agentLate {
		s.kill(ctx, runtime.OutcomeTimeLimit)
	}
	s.mu.Lock()
	overdue := s.killed != "" && s.gone == "" && s.isLate(time.Now())
	s.mu.Unlock()
	if !overdue || s.burnt.Swap(true) {
		return
	}
	s.engine.logger.Warn("an agent didn't end an execution; its runner goes",
		zap.String("execution", string(x.ID)), zap.String("runner", string(x.RunnerID)))
	if _, err := s.pool.Release(ctx, x.RunnerID); err != nil {
		s.engine.logger.Warn("a runner could not be released", zap.String("runner", string(x.RunnerID)), zap.Error(err))
	}
}

// isLate reports whether an agent should have ended what it was told to end. One
// that couldn't be reached, since the cluster's own ways to it were broken, may
// have ended it long ago, and has its time to tell; but not for ever. The caller
// holds mu.
func (s *session) isLate(now time.Time) bool {
	if now.After(s.late.Add(agentAway)) {
		return true
	}
	return now.After(s.late) && s.away.IsZero() && now.After(s.back.Add(agentLate))
}

// watchRunner closes the stream of a runner that went, once its last output had
// time to come.
func (s *session) watchRunner() {
	s.mu.Lock()
	stream := s.stream
	over := s.gone != "" && time.Since(s.goneAt) > goneGrace
	s.mu.Unlock()
	if over && stream != nil {
		_ = stream.Close()
	}
}

// kill ends the execution because of outcome. The first reason counts; it is
// stored first, for a server that sees the end without having asked for it.
func (s *session) kill(ctx context.Context, outcome runtime.Outcome) {
	s.mu.Lock()
	stream := s.stream
	first := s.killed == ""
	if first {
		s.killed, s.late = outcome, time.Now().Add(agentLate)
	}
	s.mu.Unlock()
	if !first {
		return
	}
	if err := s.engine.store.NoteKilled(context.WithoutCancel(ctx), s.execution().ID, outcome); err != nil {
		s.engine.logger.Warn("why an execution is killed could not be stored", zap.String("execution", string(s.execution().ID)), zap.Error(err))
	}
	if stream != nil {
		_ = stream.Kill(grace(outcome)) // a broken stream is joined again, and told again
	}
}

// grace is the time between SIGTERM and SIGKILL.
func grace(outcome runtime.Outcome) time.Duration {
	if outcome == runtime.OutcomeCancelled {
		return killGrace
	}
	return 0
}

// reason returns why we killed it; "" means that we didn't.
func (s *session) reason() runtime.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed
}

// runnerGone notes that the runner goes, or went. It never blocks: a pool's
// owner calls it, and s.mu is never held while something is written.
func (s *session) runnerGone(r runtime.Runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == "" {
		s.gone, s.goneAt = r.GoneReason, time.Now()
		if s.gone == "" {
			s.gone = runtime.GoneUnknown
		}
	}
}

// wentAt returns why the runner went; "" means that it is there.
func (s *session) wentAt() runtime.GoneReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}
