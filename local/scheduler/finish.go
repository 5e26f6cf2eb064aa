package scheduler

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// finish records the outcome of an evaluation whose plan didn't record it: it is complete, or a
// BLOCKED evaluation continues it because of its shortages.
func (s *Scheduler) finish(d delivery, short []Shortage) error {
	if !s.broker.holds(d) {
		return errNotHeld
	}
	began := time.Now()
	defer func() { s.stats.observe(d.Type, StepUpdate, began) }()
	if short == nil {
		if stored := s.state.snapshot().evaluation(d.ID); stored != nil && !stored.Status.Ended() {
			s.state.write(func(w *write) { complete(w, d, "") })
		}
		if old := s.blocked.done(d.Job); old != nil && old.ID != d.ID {
			s.cancel(old, "evaluation "+string(d.ID)+" superseded it")
		}
		s.config.Changed(d.Environment)
		return nil
	}
	e := s.state.block(d, short)
	if e == nil {
		return nil
	}
	if e.ID == d.ID {
		s.stats.reblocked.Add(1)
	} else {
		s.stats.blocked.Add(1)
	}
	if old := s.blocked.block(e); old != nil {
		s.cancel(old, "evaluation "+string(e.ID)+" waits in its place")
	}
	s.config.Changed(d.Environment)
	return nil
}

// complete ends d's evaluation as COMPLETE; next is the evaluation that continues it, "" for none.
func complete(w *write, d delivery, next runtime.EvaluationID) {
	stored := w.evaluation(d.ID)
	if stored == nil {
		return
	}
	if ended, ok := stored.end(runtime.EvaluationComplete, w.now); ok {
		ended.Reason, ended.Shortages, ended.Queued = "", nil, 0
		if next != "" {
			ended.Queued = 1
		}
		ended.Next, ended.DequeuedAt, ended.SnapshotIndex = next, d.DequeuedAt, d.SnapshotIndex
		w.putEvaluation(ended)
	}
}

// block returns the evaluation that waits for what d's job lacks: d's own if it has waited before,
// else a new one. If d's own waits again for the same reason, nothing is written. It returns nil if
// d's was cancelled meanwhile because another evaluation waits in its place.
func (s *state) block(d delivery, short []Shortage) *Evaluation {
	reason := describe(short)
	if d.Status == runtime.EvaluationBlocked && d.Reason == reason {
		if stored := s.snapshot().evaluation(d.ID); stored == nil || stored.Status.Ended() {
			return nil
		}
		return d.Evaluation
	}
	var waits *Evaluation
	s.write(func(w *write) {
		stored, job := w.evaluation(d.ID), w.job(d.Job)
		if stored == nil || stored.Status.Ended() || job == nil {
			return
		}
		if d.Status == runtime.EvaluationBlocked {
			again := *d.Evaluation
			waits = &again
		} else {
			waits = &Evaluation{
				ID:          runtime.EvaluationID(newID()),
				Type:        d.Type,
				Job:         d.Job,
				Tenant:      d.Tenant,
				Environment: d.Environment,
				Priority:    d.Priority,
				Trigger:     runtime.TriggerNoRoom,
				Status:      runtime.EvaluationBlocked,
				Previous:    d.ID,
				Queued:      1,
				DequeuedAt:  d.DequeuedAt,
				since:       d.since,
			}
			complete(w, d, waits.ID)
		}
		waits.SnapshotIndex = d.SnapshotIndex
		waits.Reason, waits.Shortages = reason, short
		waits.wanted = job.Resources
		w.putEvaluation(waits)
	})
	return waits
}

// cancel ends an evaluation that is no longer needed, as CANCELLED.
func (s *Scheduler) cancel(e *Evaluation, why string) {
	s.state.write(func(w *write) {
		stored := w.evaluation(e.ID)
		if stored == nil {
			return
		}
		if ended, ok := stored.end(runtime.EvaluationCancelled, w.now); ok {
			ended.Reason = why
			w.putEvaluation(ended)
		}
	})
}
