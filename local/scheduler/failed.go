package scheduler

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// followUpAfter is how long a job rests after its evaluation failed: an immediate retry wouldn't
// help.
const followUpAfter = time.Minute

// followUp records failed evaluations as FAILED and enqueues a follow-up for each, until ctx ends.
func (s *Scheduler) followUp(ctx context.Context) {
	for {
		select {
		case <-s.broker.failing:
		case <-ctx.Done():
			return
		}
		for _, e := range s.broker.failures() {
			next := s.state.fail(e)
			if old := s.blocked.done(e.Job); old != nil && old.ID != e.ID {
				s.cancel(old, "evaluation "+string(e.ID)+" was to replace it, and failed")
			}
			s.log.Warn("an evaluation failed; if its runner is still wanted, a follow-up runs in 1 minute", zap.String("evaluation", string(e.ID)), zap.String("runner", string(e.Job)))
			if next != nil {
				s.broker.enqueue(next)
			}
			s.config.Changed(e.Environment)
		}
	}
}

// fail ends e as FAILED and returns its follow-up; nil: its job no longer exists.
func (s *state) fail(e *Evaluation) *Evaluation {
	var next *Evaluation
	s.write(func(w *write) {
		if job := w.job(e.Job); job != nil {
			next = evaluate(job, runtime.TriggerFailedFollowUp)
			next.Previous, next.WaitUntil = e.ID, w.now.Add(followUpAfter)
			w.putEvaluation(next)
		}
		stored := w.evaluation(e.ID)
		if stored == nil {
			return
		}
		if ended, ok := stored.end(runtime.EvaluationFailed, w.now); ok {
			ended.Reason = fmt.Sprintf("delivered %d times without success; the server's log says why", maxDeliveries)
			if next != nil {
				ended.Next = next.ID
			}
			w.putEvaluation(ended)
		}
	})
	return next
}
