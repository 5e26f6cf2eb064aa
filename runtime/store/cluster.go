package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/rockpool/rockpool/runtime"
)

// Environments returns all, sorted by id.
func (s *Store) Environments(ctx context.Context) ([]runtime.Environment, error) {
	return query[runtime.Environment](ctx, s, "list environments", "SELECT value FROM environments ORDER BY id")
}

// PutEnvironment stores env if the stored revision is env.Revision-1 (none
// counts as 0), does nothing if it is stored already, and returns CONFLICT
// otherwise.
func (s *Store) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	value, err := json.Marshal(env)
	if err != nil {
		return err
	}
	return s.write(ctx, "store an environment", func(tx *sql.Tx) error {
		var revision int
		var stored []byte
		err := tx.QueryRow("SELECT revision, value FROM environments WHERE id = ?", env.ID).Scan(&revision, &stored)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return err
		case revision == env.Revision && string(stored) == string(value):
			return nil
		case revision != env.Revision-1:
			return runtime.Errorf(runtime.CodeConflict, "environment %s is at revision %d", env.ID, revision)
		}
		_, err = tx.Exec("INSERT OR REPLACE INTO environments (id, revision, value) VALUES (?, ?, ?)", env.ID, env.Revision, value)
		return err
	})
}

// DeleteEnvironment forgets an environment; one that isn't there is success.
func (s *Store) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	return s.write(ctx, "delete an environment", func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM environments WHERE id = ?", id)
		return err
	})
}

// Runners calls each for every stored runner, with what the cluster keeps
// about it for itself.
func (s *Store) Runners(ctx context.Context, each func(r runtime.Runner, private []byte) error) error {
	rows, err := s.reads.QueryContext(ctx, "SELECT value, claim, private FROM runners ORDER BY id")
	if err != nil {
		return typed(err, "list runners")
	}
	defer rows.Close()
	for rows.Next() {
		var r runtime.Runner
		var value, claim, private []byte
		if err := rows.Scan(&value, &claim, &private); err != nil {
			return typed(err, "list runners")
		}
		if err := errors.Join(json.Unmarshal(value, &r), json.Unmarshal(claim, &r.Claim)); err != nil {
			return typed(err, "list runners")
		}
		if r.Claim.Held() && r.State.Before(runtime.RunnerClaimed) {
			r.State = runtime.RunnerClaimed
		}
		if err := each(r, private); err != nil {
			return err
		}
	}
	return typed(rows.Err(), "list runners")
}

// PutRunner inserts or replaces a runner. The claim is Mark's to change:
// a stored one stays.
func (s *Store) PutRunner(ctx context.Context, r runtime.Runner, private []byte) error {
	claim, err := json.Marshal(r.Claim)
	if err != nil {
		return err
	}
	epoch := r.Claim.Epoch
	r.Claim = runtime.Claim{}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.write(ctx, "store a runner", func(tx *sql.Tx) error {
		_, err := tx.Exec(`INSERT INTO runners (id, epoch, value, claim, private) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET value = excluded.value, private = excluded.private`,
			r.ID, epoch, value, claim, private)
		return err
	})
}

// MarkRunner stores claim if the stored epoch is claim.Epoch-1, does nothing if
// the stored claim equals it, and returns CONFLICT otherwise and RUNNER_GONE
// for a runner that isn't stored. The runner's state becomes CLAIMED.
func (s *Store) MarkRunner(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	value, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	return s.write(ctx, "store a claim", func(tx *sql.Tx) error {
		result, err := tx.Exec(`UPDATE runners SET epoch = ?1, claim = ?2 WHERE id = ?3 AND epoch = ?1 - 1`,
			claim.Epoch, value, id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return err
		}
		var stored []byte
		switch err := tx.QueryRow("SELECT claim FROM runners WHERE id = ?", id).Scan(&stored); {
		case errors.Is(err, sql.ErrNoRows):
			return runtime.Errorf(runtime.CodeRunnerGone, "runner %s is gone", id)
		case err != nil:
			return err
		}
		var have runtime.Claim
		if err := json.Unmarshal(stored, &have); err != nil {
			return err
		}
		if !have.Equal(claim) {
			return runtime.Errorf(runtime.CodeConflict, "runner %s is at epoch %d of its claim", id, have.Epoch)
		}
		return nil
	})
}

// DeleteRunner forgets a runner; one that isn't there is success.
func (s *Store) DeleteRunner(ctx context.Context, id runtime.RunnerID) error {
	return s.write(ctx, "delete a runner", func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM runners WHERE id = ?", id)
		return err
	})
}

// query returns the JSON values of the first column of the rows.
func query[T any](ctx context.Context, s *Store, doing, statement string, args ...any) ([]T, error) {
	rows, err := s.reads.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var raw []byte
		var value T
		if err := rows.Scan(&raw); err != nil {
			return nil, typed(err, doing)
		}
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, typed(err, doing)
		}
		all = append(all, value)
	}
	return all, typed(rows.Err(), doing)
}
