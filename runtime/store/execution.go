package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// AddExecution stores a new execution. Where its key is stored already with
// another execution it stores nothing and returns that one and false.
func (s *Store) AddExecution(ctx context.Context, x runtime.Execution) (runtime.Execution, bool, error) {
	value, err := json.Marshal(x)
	if err != nil {
		return x, false, err
	}
	stored, added := x, true
	err = s.write(ctx, "store an execution", func(tx *sql.Tx) error {
		if x.Key != "" {
			var raw []byte
			err := tx.QueryRow("SELECT value FROM executions WHERE key = ?", x.Key).Scan(&raw)
			if err == nil {
				added = false
				return json.Unmarshal(raw, &stored)
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		_, err := tx.Exec("INSERT INTO executions (id, runner, environment, state, key, value) VALUES (?, ?, ?, ?, nullif(?, ''), ?)",
			x.ID, x.RunnerID, x.EnvironmentID, x.State, x.Key, value)
		return err
	})
	return stored, added, err
}

// PutExecution replaces a stored execution.
func (s *Store) PutExecution(ctx context.Context, x runtime.Execution) error {
	value, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return s.write(ctx, "store an execution", func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE executions SET state = ?, value = ? WHERE id = ?", x.State, value, x.ID)
		return err
	})
}

// Execution returns EXECUTION_NOT_FOUND for one that isn't stored.
func (s *Store) Execution(ctx context.Context, id runtime.ExecutionID) (runtime.Execution, error) {
	found, err := query[runtime.Execution](ctx, s, "read an execution", "SELECT value FROM executions WHERE id = ?", id)
	if err == nil && len(found) == 0 {
		err = runtime.Errorf(runtime.CodeExecutionNotFound, "no execution %s: it never was, or it was collected", id)
	}
	if err != nil {
		return runtime.Execution{}, err
	}
	return found[0], nil
}

// ExecutionByKey returns the execution that was stored with an idempotency
// key, and whether there is one.
func (s *Store) ExecutionByKey(ctx context.Context, key string) (runtime.Execution, bool, error) {
	found, err := query[runtime.Execution](ctx, s, "read an execution", "SELECT value FROM executions WHERE key = ?", key)
	if err != nil || len(found) == 0 {
		return runtime.Execution{}, false, err
	}
	return found[0], true, nil
}

// Unfinished returns all executions that aren't FINISHED, oldest first.
func (s *Store) Unfinished(ctx context.Context) ([]runtime.Execution, error) {
	return query[runtime.Execution](ctx, s, "list executions", "SELECT value FROM executions WHERE state <> 'FINISHED' ORDER BY id")
}

// An ExecutionFilter selects executions; a zero field selects all.
type ExecutionFilter struct {
	RunnerID      runtime.RunnerID
	EnvironmentID runtime.EnvironmentID
	States        []runtime.ExecutionState
}

// Executions returns the first ones after an id, oldest first, and how many
// there are in all.
func (s *Store) Executions(ctx context.Context, q ExecutionFilter, first int, after runtime.ExecutionID) ([]runtime.Execution, int, error) {
	where, args := "true", []any{}
	if q.RunnerID != "" {
		where, args = where+" AND runner = ?", append(args, q.RunnerID)
	}
	if q.EnvironmentID != "" {
		where, args = where+" AND environment = ?", append(args, q.EnvironmentID)
	}
	if states := slices.Compact(slices.Sorted(slices.Values(q.States))); len(states) > 0 {
		where += " AND state IN (?" + strings.Repeat(", ?", len(states)-1) + ")"
		for _, state := range states {
			args = append(args, state)
		}
	}
	var total int
	if err := s.reads.QueryRowContext(ctx, "SELECT count(*) FROM executions WHERE "+where, args...).Scan(&total); err != nil {
		return nil, 0, typed(err, "count executions")
	}
	page, err := query[runtime.Execution](ctx, s, "list executions",
		"SELECT value FROM executions WHERE "+where+" AND id > ? ORDER BY id LIMIT ?", append(args, after, first)...)
	return page, total, err
}

// A SpentKey is the idempotency key of a claim whose runner is gone.
type SpentKey struct {
	Key     string
	Input   string // digest of what was asked with it
	Runner  runtime.RunnerID
	Expires time.Time
}

// PutSpentKey remembers a key, and forgets those that have expired.
func (s *Store) PutSpentKey(ctx context.Context, k SpentKey, now time.Time) error {
	return s.write(ctx, "store a spent key", func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM spent_keys WHERE expires < ?", now.Unix()); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT OR REPLACE INTO spent_keys (key, input, runner, expires) VALUES (?, ?, ?, ?)",
			k.Key, k.Input, k.Runner, k.Expires.Unix())
		return err
	})
}

// SpentKey returns what is remembered of a key at this time, and whether
// anything is.
func (s *Store) SpentKey(ctx context.Context, key string, now time.Time) (SpentKey, bool, error) {
	k := SpentKey{Key: key}
	var expires int64
	err := s.reads.QueryRowContext(ctx, "SELECT input, runner, expires FROM spent_keys WHERE key = ? AND expires >= ?", key, now.Unix()).
		Scan(&k.Input, &k.Runner, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return SpentKey{}, false, nil
	}
	k.Expires = time.Unix(expires, 0)
	return k, err == nil, typed(err, "read a spent key")
}
