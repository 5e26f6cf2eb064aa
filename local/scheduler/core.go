package scheduler

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// coreJob is the job of collections: no runner has an id without bytes.
const coreJob runtime.RunnerID = ""

// collectAtIntervals makes the evaluations of the core job until ctx ends.
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

// maxCollected bounds one write of a collection, so that placements don't wait
// for it.
const maxCollected = 500

// collect forgets what ended long enough ago.
func (s *Scheduler) collect(d delivery, snap Snapshot) error {
	began := time.Now()
	rows := s.config.Collect.old(snap, began)
	s.stats.took(d.Type, StepSchedule, began)
	d.SnapshotIndex = snap.index
	for len(rows) > 0 {
		batch := rows[:min(maxCollected, len(rows))]
		rows = rows[len(batch):]
		s.state.write(func(w *write) {
			for _, r := range batch {
				w.remove(r.table, r.row) // nothing brings back what has ended
			}
		})
		s.stats.collected.Add(int64(len(batch)))
	}
	return s.finish(d, nil)
}

type oldRow struct {
	table string
	row   any
}

// old returns the rows of what ended long enough before now. A job goes after
// its allocations.
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
