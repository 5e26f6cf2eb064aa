package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// A shared database also stores the output of executions. Only one caller at a time may append to it.

// AppendOutput stores bytes of an execution's output at position, which must be the number of bytes
// stored so far. It returns STORAGE_FULL if there is no room, and CLUSTER_UNAVAILABLE if another
// server leads or the store is closed.
func (s *Store) AppendOutput(ctx context.Context, id runtime.ExecutionID, position int64, data []byte) error {
	return s.db.Exec(ctx, "store output", "INSERT INTO output (execution, position, data) VALUES ($1, $2, $3)", id, position, data)
}

// OutputSize returns how many bytes of an execution's output are stored.
func (s *Store) OutputSize(ctx context.Context, id runtime.ExecutionID) (size int64, err error) {
	err = s.db.Read(ctx, "read output", func(ctx context.Context, from *sql.DB) error {
		return from.QueryRowContext(ctx, "SELECT position + length(data) FROM output WHERE execution = $1 ORDER BY position DESC LIMIT 1", id).Scan(&size)
	})
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return size, err
}

// ReadOutput reads an execution's output from a position into p. It returns how many bytes it read:
// as many as fit or exist.
func (s *Store) ReadOutput(ctx context.Context, id runtime.ExecutionID, position int64, p []byte) (n int, err error) {
	err = s.db.Read(ctx, "read output", func(ctx context.Context, from *sql.DB) (err error) {
		n, err = readOutput(ctx, from, id, position, p)
		return err
	})
	return n, err
}

// readOutput reads stored output from a position into p. It stops at the first missing byte.
func readOutput(ctx context.Context, from *sql.DB, id runtime.ExecutionID, position int64, p []byte) (n int, err error) {
	// The first row is the last one that begins at or before the position.
	rows, err := from.QueryContext(ctx, `SELECT position, data FROM output WHERE execution = $1 AND position < $3
		AND position >= (SELECT coalesce(max(position), 0) FROM output WHERE execution = $1 AND position <= $2) ORDER BY position`, id, position, position+int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var data sql.RawBytes
		if err := rows.Scan(&at, &data); err != nil {
			return 0, err
		}
		next := position + int64(n)
		if at > next || next-at >= int64(len(data)) {
			break // missing or incomplete
		}
		n += copy(p[n:], data[next-at:])
	}
	return n, rows.Err()
}

// PutOutputAside keeps an execution's output for inspection, under its id with the suffix ".unreadable".
func (s *Store) PutOutputAside(ctx context.Context, id runtime.ExecutionID) error {
	return s.db.Exec(ctx, "put output aside", "UPDATE output SET execution = execution || '.unreadable' WHERE execution = $1", id)
}
