package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// Environments calls each for every stored environment, ordered by id. For an unreadable one, only
// the id is known, and unreadable says why.
func (s *Store) Environments(ctx context.Context, each func(env runtime.Environment, unreadable error) error) error {
	return s.db.Each(ctx, "list environments", func(scan func(...any) error) error {
		var id runtime.EnvironmentID
		var value []byte
		if err := scan(&id, &value); err != nil {
			return err
		}
		var env runtime.Environment
		if err := json.Unmarshal(value, &env); err != nil {
			return each(runtime.Environment{ID: id}, err)
		}
		return each(env, nil)
	}, "SELECT id, value FROM environments ORDER BY id")
}

// PutEnvironment stores env if the stored revision is env.Revision-1 (a missing environment counts
// as 0). It does nothing if an equal env is stored, and returns CONFLICT otherwise.
func (s *Store) PutEnvironment(ctx context.Context, env runtime.Environment) error {
	value, err := json.Marshal(env)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, "store an environment", func(tx *database.Tx) error {
		var revision int
		var stored []byte
		err := tx.QueryRow("SELECT revision, value FROM environments WHERE id = $1", env.ID).Scan(&revision, &stored)
		switch {
		case err != nil && !errors.Is(err, sql.ErrNoRows):
			return err
		case revision == env.Revision && string(stored) == string(value):
			return nil
		case revision != env.Revision-1:
			return runtime.Errorf(runtime.CodeConflict, "environment %s is at revision %d", env.ID, revision)
		}
		_, err = tx.Exec(`INSERT INTO environments (id, revision, value) VALUES ($1, $2, $3)
			ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, value = excluded.value`, env.ID, env.Revision, value)
		return err
	})
}

// PutFirst stores environments if none is stored yet, readable or not. It stores all or none, and reports
// whether it did.
func (s *Store) PutFirst(ctx context.Context, environments []runtime.Environment) (bool, error) {
	if len(environments) == 0 {
		return false, nil
	}
	values := make([][]byte, len(environments))
	for i, env := range environments {
		var err error
		if values[i], err = json.Marshal(env); err != nil {
			return false, err
		}
	}
	var first bool
	err := s.db.Write(ctx, "store the first environments", func(tx *database.Tx) error {
		if err := tx.QueryRow("SELECT NOT EXISTS (SELECT 1 FROM environments)").Scan(&first); err != nil || !first {
			return err
		}
		for i, env := range environments {
			if _, err := tx.Exec("INSERT INTO environments (id, revision, value) VALUES ($1, $2, $3)", env.ID, env.Revision, values[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return first && err == nil, err
}

// DeleteEnvironment deletes an environment; a missing one is success.
func (s *Store) DeleteEnvironment(ctx context.Context, id runtime.EnvironmentID) error {
	return s.db.Exec(ctx, "delete an environment", "DELETE FROM environments WHERE id = $1", id)
}

// Runners calls each for every stored runner, with the cluster's private data about it. For an unreadable
// one, only the id is known, and unreadable says why. A claim of which only the times are unreadable
// gets safe times, which are then stored.
func (s *Store) Runners(ctx context.Context, each func(r runtime.Runner, private []byte, unreadable error) error) error {
	mended := map[runtime.RunnerID]runtime.Claim{}
	err := s.db.Each(ctx, "list runners", func(scan func(...any) error) error {
		var id runtime.RunnerID
		var value, text, private []byte
		if err := scan(&id, &value, &text, &private); err != nil {
			return err
		}
		var r runtime.Runner
		claim, safe, err := readClaim(text, time.Now())
		if err := errors.Join(json.Unmarshal(value, &r), err); err != nil {
			return each(runtime.Runner{ID: id}, private, err)
		}
		if r.Claim = claim; safe {
			mended[id] = claim
		}
		// MarkRunner stores only the claim, not the state.
		if r.Claim.Held() && r.State.Before(runtime.RunnerClaimed) {
			r.State = runtime.RunnerClaimed
		}
		return each(r, private, nil)
	}, "SELECT id, value, claim, private FROM runners ORDER BY id")
	for id, claim := range mended {
		// If the disk is full, the next call replaces them again.
		if put := s.putClaim(ctx, id, claim); runtime.CodeOf(put) != runtime.CodeStorageFull {
			err = errors.Join(err, put)
		}
	}
	return err
}

// safeTimeout is the inactivity timeout of a claim whose own is unreadable. No holder loses a runner
// immediately, and none keeps one forever.
const safeTimeout = 10 * time.Minute

// readClaim returns a stored claim. safe says that its times were unreadable and have been replaced.
func readClaim(text []byte, now time.Time) (claim runtime.Claim, safe bool, err error) {
	if err := json.Unmarshal(text, &claim); err == nil && claim.InactivityTimeout >= 0 && (claim.InactivityTimeout > 0 || claim.ExpiresAt.IsZero()) {
		return claim, false, nil
	}
	claim = runtime.Claim{}
	// The outer fields hide those of Claim, so that the rest is readable without the times.
	rest := struct {
		*runtime.Claim
		ExpiresAt         json.RawMessage `json:"expiresAt"`
		InactivityTimeout json.RawMessage `json:"inactivityTimeout"`
	}{Claim: &claim}
	if err := json.Unmarshal(text, &rest); err != nil {
		return runtime.Claim{}, false, err
	}
	if json.Unmarshal(rest.InactivityTimeout, &claim.InactivityTimeout) != nil || claim.InactivityTimeout <= 0 {
		claim.InactivityTimeout = safeTimeout
	}
	claim.ExpiresAt = now.Add(claim.InactivityTimeout)
	return claim, true, nil
}

func (s *Store) putClaim(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	value, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	return s.db.Exec(ctx, "store a claim", "UPDATE runners SET claim = $1 WHERE id = $2", value, id)
}

// PutRunner inserts or replaces a runner. It doesn't change a stored claim; only MarkRunner does.
func (s *Store) PutRunner(ctx context.Context, r runtime.Runner, private []byte) error {
	claim, err := json.Marshal(r.Claim)
	if err != nil {
		return err
	}
	// The claim has a column of its own, which an existing row keeps.
	epoch := r.Claim.Epoch
	r.Claim = runtime.Claim{}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return s.db.Exec(ctx, "store a runner", `INSERT INTO runners (id, epoch, value, claim, private) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET value = excluded.value, private = excluded.private`,
		r.ID, epoch, value, claim, private)
}

// MarkRunner stores claim if the stored epoch is claim.Epoch-1. It does nothing if the stored claim
// equals it. Otherwise it returns CONFLICT, or RUNNER_GONE for a missing runner. Runners then
// returns the runner as CLAIMED.
func (s *Store) MarkRunner(ctx context.Context, id runtime.RunnerID, claim runtime.Claim) error {
	value, err := json.Marshal(claim)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, "store a claim", func(tx *database.Tx) error {
		// The epoch decides between concurrent claims: only one of them finds the previous epoch.
		result, err := tx.Exec(`UPDATE runners SET epoch = $1, claim = $2 WHERE id = $3 AND epoch = $1 - 1`,
			claim.Epoch, value, id)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return err
		}
		var stored []byte
		switch err := tx.QueryRow("SELECT claim FROM runners WHERE id = $1", id).Scan(&stored); {
		case errors.Is(err, sql.ErrNoRows):
			return runtime.Errorf(runtime.CodeRunnerGone, "runner %s is gone", id)
		case err != nil:
			return err
		}
		var have runtime.Claim
		if err := json.Unmarshal(stored, &have); err != nil {
			return err
		}
		if !have.Equal(claim) { // an equal one was stored by an earlier attempt whose answer was lost
			return runtime.Errorf(runtime.CodeConflict, "runner %s is at epoch %d of its claim", id, have.Epoch)
		}
		return nil
	})
}

// DeleteRunner deletes a runner; a missing one is success.
func (s *Store) DeleteRunner(ctx context.Context, id runtime.RunnerID) error {
	return s.db.Exec(ctx, "delete a runner", "DELETE FROM runners WHERE id = $1", id)
}

// Draining returns since when the machine has been draining. The zero time means that it isn't.
func (s *Store) Draining(ctx context.Context) (time.Time, error) {
	var since int64
	switch err := s.db.QueryRow(ctx, "SELECT since FROM draining").Scan(&since); {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, database.Wrap(err, "read whether the machine is drained")
	}
	return time.UnixMilli(since).UTC(), nil
}

// SetDraining stores since when the machine has been draining. The zero time means that it isn't.
func (s *Store) SetDraining(ctx context.Context, since time.Time) error {
	const doing = "store whether the machine is drained"
	if since.IsZero() {
		return s.db.Exec(ctx, doing, "DELETE FROM draining")
	}
	return s.db.Exec(ctx, doing, "INSERT INTO draining (one, since) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET since = excluded.since", since.UnixMilli())
}
