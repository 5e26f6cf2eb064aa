package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// An Unfinished is an unfinished execution with what its owner needs to continue it.
type Unfinished struct {
	Execution runtime.Execution
	Start     []byte             // from AddExecution
	Killed    runtime.Outcome    // see NoteKilled
	InputEnd  *int64             // see NoteInputEnd
	Gone      runtime.GoneReason // see NoteGone
}

// Unfinished returns all unfinished executions, oldest first, except unreadable ones: see Unreadable.
func (s *Store) Unfinished(ctx context.Context) ([]Unfinished, error) {
	var all []Unfinished
	err := s.db.Each(ctx, "list unfinished executions", func(scan func(...any) error) error {
		var id runtime.ExecutionID
		var value []byte
		var u Unfinished
		err := scan(&id, &value, &u.Start, &u.Killed, &u.InputEnd, &u.Gone)
		if err == nil && s.unreadable.decode(id, value, &u.Execution) {
			all = append(all, u)
		}
		return err
	}, `SELECT e.id, e.value, r.start, coalesce(r.killed, ''), r.input_end, coalesce(r.gone, '')
		FROM executions e LEFT JOIN restarts r ON r.execution = e.id WHERE e.state <> 'FINISHED' ORDER BY e.id`)
	return all, err
}

// NoteKilled stores why an execution is being killed; the first reason stays.
func (s *Store) NoteKilled(ctx context.Context, id runtime.ExecutionID, outcome runtime.Outcome) error {
	return s.db.Exec(ctx, "note a kill", "UPDATE restarts SET killed = coalesce(killed, $1) WHERE execution = $2", outcome, id)
}

// NoteGone stores why the runner of unfinished executions is about to be removed, because nothing
// else will say it afterwards. The last reason counts.
func (s *Store) NoteGone(ctx context.Context, id runtime.RunnerID, reason runtime.GoneReason) error {
	return s.db.Exec(ctx, "note the end of a runner", "UPDATE restarts SET gone = $1 WHERE execution IN (SELECT id FROM executions WHERE runner = $2 AND state <> 'FINISHED')", reason, id)
}

// NoteInputEnd stores that an execution's stdin was closed at an offset.
func (s *Store) NoteInputEnd(ctx context.Context, id runtime.ExecutionID, offset int64) error {
	return s.db.Exec(ctx, "note the end of a stdin", "UPDATE restarts SET input_end = $1 WHERE execution = $2", offset, id)
}

// Released reports whether a runner should have been released with one of its executions, or its
// batch, and that has ended.
func (s *Store) Released(ctx context.Context, id runtime.RunnerID) (bool, error) {
	released := false
	err := s.db.Each(ctx, "look for a release", func(scan func(...any) error) error {
		var value []byte
		var ended struct{ Release bool }
		err := scan(&value)
		released = released || err == nil && json.Unmarshal(value, &ended) == nil && ended.Release
		return err
	}, `SELECT value FROM executions WHERE runner = $1 AND finished IS NOT NULL
		UNION ALL SELECT value FROM batches WHERE runner = $1 AND finished IS NOT NULL`, id)
	return released, err
}

// Neighbours reports whether any execution of a runner ended after since, in whole milliseconds.
func (s *Store) Neighbours(ctx context.Context, id runtime.RunnerID, since time.Time) (bool, error) {
	var there bool
	err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM executions WHERE runner = $1 AND finished > $2)", id, since.UnixMilli()).Scan(&there)
	return there, database.Wrap(err, "look for neighbours")
}
