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
	evidence, err := s.engine.cluster.Evidence(ctx, s.runner.ID)
	if err == nil && evidence.ProcessLimitHits > s.before.ProcessLimitHits {
		s.kill(runtime.OutcomeProcessLimit)
	}
}

// watchTime removes the runner of an execution whose agent didn't keep the time
// limit.
func (s *session) watchTime(ctx context.Context, x runtime.Execution) {
	if x.TimeLimit == 0 || x.Marks.StartedAt.IsZero() || time.Since(x.Marks.StartedAt) < x.TimeLimit+agentLate {
		return
	}
	if s.wentAt() != "" {
		return
	}
	s.engine.logger.Warn("an agent didn't keep a time limit; its runner goes",
		zap.String("execution", string(x.ID)), zap.String("runner", string(x.RunnerID)))
	if _, err := s.pool.Release(ctx, x.RunnerID); err != nil {
		s.engine.logger.Warn("a runner could not be released", zap.String("runner", string(x.RunnerID)), zap.Error(err))
	}
}

// watchRunner closes the stream of a runner that went, once its last output had
// time to come.
func (s *session) watchRunner() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone != "" && s.stream != nil && time.Since(s.goneAt) > goneGrace {
		_ = s.stream.Close()
	}
}

// kill ends the execution because of outcome. The first reason counts.
func (s *session) kill(outcome runtime.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed != "" {
		return
	}
	s.killed = outcome
	if s.stream != nil {
		grace := time.Duration(0)
		if outcome == runtime.OutcomeCancelled {
			grace = killGrace
		}
		_ = s.stream.Kill(grace) // a broken stream is joined again, and told again
	}
}

// runnerGone notes that the runner goes, or went. It never blocks.
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
