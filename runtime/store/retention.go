package store

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// FinishedBytes returns how much all finished executions take on the disk.
func (s *Store) FinishedBytes(ctx context.Context) (int64, error) {
	var sum int64
	err := s.reads.QueryRowContext(ctx, "SELECT coalesce(sum(bytes), 0) FROM executions WHERE finished IS NOT NULL").Scan(&sum)
	return sum, typed(err, "count what is kept")
}

// A Finished is an execution that can be collected.
type Finished struct {
	ID    runtime.ExecutionID
	At    time.Time
	Bytes int64 // that it takes on the disk
}

// Oldest returns the executions that finished first, at most so many.
func (s *Store) Oldest(ctx context.Context, most int) ([]Finished, error) {
	const doing = "list the oldest executions"
	rows, err := s.reads.QueryContext(ctx, "SELECT id, finished, bytes FROM executions WHERE finished IS NOT NULL ORDER BY finished, bytes LIMIT ?", most)
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	var all []Finished
	for rows.Next() {
		var f Finished
		var at int64
		if err := rows.Scan(&f.ID, &at, &f.Bytes); err != nil {
			return nil, typed(err, doing)
		}
		f.At = time.UnixMilli(at)
		all = append(all, f)
	}
	return all, typed(rows.Err(), doing)
}

// DeleteExecutions forgets finished executions, all or none. Their keys stay
// spent until keysExpire: a late repeat must not start anything a second time.
func (s *Store) DeleteExecutions(ctx context.Context, ids []runtime.ExecutionID, keysExpire time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	these := " IN (?" + strings.Repeat(", ?", len(ids)-1) + ")"
	args := []any{keysExpire.Unix()}
	for _, id := range ids {
		args = append(args, id)
	}
	return s.write(ctx, "delete executions", func(tx *sql.Tx) error {
		// This first: a write may be committed in part.
		_, err := tx.Exec(`INSERT OR IGNORE INTO spent_keys (expires, key, input, runner)
			SELECT ?, key, coalesce(json_extract(CAST(value AS TEXT), '$.input'), ''), runner FROM executions
			WHERE key IS NOT NULL AND finished IS NOT NULL AND json_valid(CAST(value AS TEXT)) AND id`+these, args...)
		if err == nil {
			_, err = tx.Exec("DELETE FROM executions WHERE finished IS NOT NULL AND id"+these, args[1:]...)
		}
		return err
	})
}

// HasExecution reports whether an execution is stored.
func (s *Store) HasExecution(ctx context.Context, id runtime.ExecutionID) (bool, error) {
	var there bool
	err := s.reads.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM executions WHERE id = ?)", id).Scan(&there)
	return there, typed(err, "look for an execution")
}
