package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// What a shared database has of the output of executions. It is appended to by one caller at a
// time.

// AppendOutput stores the bytes of an execution's output that come at a position: where those
// that are stored end. STORAGE_FULL: there is no room. CLUSTER_UNAVAILABLE: another server leads,
// or the store is closed.
func (s *Store) AppendOutput(ctx context.Context, id runtime.ExecutionID, position int64, data []byte) error {
	return s.write(ctx, "store output", func(tx *transaction) error {
		_, err := tx.Exec("INSERT INTO output (execution, position, data) VALUES ($1, $2, $3)", id, position, data)
		return err
	})
}

// OutputSize returns how many bytes of an execution's output are stored.
func (s *Store) OutputSize(ctx context.Context, id runtime.ExecutionID) (size int64, err error) {
	err = s.reads.QueryRowContext(ctx, "SELECT position + length(data) FROM output WHERE execution = $1 ORDER BY position DESC LIMIT 1", id).Scan(&size)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return size, typed(err, "read output")
}

// ReadOutput reads an execution's output from a position on into p, and returns how much that is:
// as much as p takes, or as there is.
func (s *Store) ReadOutput(ctx context.Context, id runtime.ExecutionID, position int64, p []byte) (n int, err error) {
	const doing = "read output"
	rows, err := s.reads.QueryContext(ctx, `SELECT position, data FROM output WHERE execution = $1 AND position < $3
		AND position >= (SELECT coalesce(max(position), 0) FROM output WHERE execution = $1 AND position <= $2) ORDER BY position`, id, position, position+int64(len(p)))
	if err != nil {
		return 0, typed(err, doing)
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var data sql.RawBytes
		if err := rows.Scan(&at, &data); err != nil {
			return n, typed(err, doing)
		}
		next := position + int64(n)
		if at > next || next-at >= int64(len(data)) {
			break // it isn't there, or isn't whole
		}
		n += copy(p[n:], data[next-at:])
	}
	return n, typed(rows.Err(), doing)
}
