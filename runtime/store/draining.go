package store

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Draining returns since when the machine has been draining; zero: it isn't.
func (s *Store) Draining(ctx context.Context) (time.Time, error) {
	var since int64
	switch err := s.reads.QueryRowContext(ctx, "SELECT since FROM draining").Scan(&since); {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, typed(err, "read whether the machine is drained")
	}
	return time.UnixMilli(since).UTC(), nil
}

// SetDraining stores since when the machine has been draining; zero: it isn't.
func (s *Store) SetDraining(ctx context.Context, since time.Time) error {
	return s.write(ctx, "store whether the machine is drained", func(tx *transaction) error {
		if since.IsZero() {
			_, err := tx.Exec("DELETE FROM draining")
			return err
		}
		_, err := tx.Exec("INSERT INTO draining (one, since) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET since = excluded.since", since.UnixMilli())
		return err
	})
}
