package scheduler

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// followUpAfter is how long a job rests whose evaluation failed: that is
// nothing that trying again at once would mend.
const followUpAfter = time.Minute

// followUp records the evaluations that were delivered too often, and has each
// followed by another one, until ctx ends.
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
				s.cancel(old, "evaluation "+string(e.ID)+" was to take its place, and failed")
			}
			s.log.Warn("an evaluation failed", zap.String("evaluation", string(e.ID)), zap.String("runner", string(e.Job)))
			if next != nil {
				s.broker.enqueue(next)
			}
			s.config.Changed(e.Environment)
		}
	}
}

// fail ends e as FAILED and returns the evaluation that follows; nil if there
// is nothing to do any more, or if that comes by itself.
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
			ended.Reason = fmt.Sprintf("delivered %d times and never carried out; the server's log says why", maxDeliveries)
			if next != nil {
				ended.Next = next.ID
			}
			w.putEvaluation(ended)
		}
	})
	return next
}
