package scheduler

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// coreJob is the job of collections. No runner has an empty id.
const coreJob runtime.RunnerID = ""

// collectAtIntervals enqueues an evaluation of the core job at each interval until ctx ends.
func (s *Scheduler) collectAtIntervals(ctx context.Context) {
	ticker := time.NewTicker(s.config.Collect.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		e := &Evaluation{
			ID:       runtime.EvaluationID(newID()),
			Type:     runtime.EvaluationCollect,
			Job:      coreJob,
			Priority: priorityCollect,
			Trigger:  runtime.TriggerInterval,
			Status:   runtime.EvaluationPending,
		}
		s.state.write(func(w *write) { w.putEvaluation(e) })
		s.broker.enqueue(e)
	}
}

// maxCollected bounds the rows that one write of a collection deletes, so that placements don't
// wait long.
const maxCollected = 500

// collect deletes what ended long enough ago.
func (s *Scheduler) collect(d delivery, snap Snapshot) error {
	began := time.Now()
	rows := s.config.Collect.old(snap, began)
	s.stats.observe(d.Type, StepSchedule, began)
	d.SnapshotIndex = snap.index
	for len(rows) > 0 {
		batch := rows[:min(maxCollected, len(rows))]
		rows = rows[len(batch):]
		s.state.write(func(w *write) {
			for _, r := range batch {
				w.remove(r.table, r.row) // ended rows never change again, so the snapshot's rows are current
			}
		})
		s.stats.collected.Add(int64(len(batch)))
	}
	return s.finish(d, nil)
}

// An oldRow is a row to delete, and its table.
type oldRow struct {
	table string
	row   any
}

// old returns the rows of everything that ended long enough before now. A job comes after its
// allocations.
func (c Collect) old(snap Snapshot, now time.Time) []oldRow {
	var rows []oldRow
	for e := range each[Evaluation](must(snap.txn.Get(tableEvaluations, "id"))) {
		if e.Status.Ended() && now.Sub(e.EndedAt) >= c.Evaluations {
			rows = append(rows, oldRow{tableEvaluations, e})
		}
	}
	for a := range each[Allocation](must(snap.txn.Get(tableAllocations, "id"))) {
		if a.Status.Ended() && now.Sub(a.EndedAt) >= c.Runners {
			rows = append(rows, oldRow{tableAllocations, a})
		}
	}
	for j := range each[Job](must(snap.txn.Get(tableJobs, "id"))) {
		if j.Status == JobDead && now.Sub(j.EndedAt) >= c.Runners {
			rows = append(rows, oldRow{tableJobs, j})
		}
	}
	return rows
}
