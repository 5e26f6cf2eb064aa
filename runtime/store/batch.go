package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A BatchStep is what a batch's owner needs for one of its executions.
type BatchStep struct {
	Value    []byte
	Expected []byte // output, see ExpectedOutput
}

// expectedPart is the size of the parts of an expected output.
const expectedPart = 64 << 10

// AddBatch stores a new batch with what its owner needs: start, shared by all its executions, and
// its steps in order. Its key can't be used for an execution for a day. If another batch has the
// key already, AddBatch stores nothing and returns that batch and false.
func (s *Store) AddBatch(ctx context.Context, b runtime.Batch, start []byte, steps []BatchStep) (stored runtime.Batch, added bool, err error) {
	value, err := json.Marshal(b)
	if err != nil {
		return b, false, err
	}
	err = s.write(ctx, "store a batch", func(tx *transaction) error {
		stored, added = b, true
		if b.Key != "" {
			var raw []byte
			err := tx.QueryRow("SELECT value FROM batches WHERE key = $1", b.Key).Scan(&raw)
			if err == nil {
				stored, added = runtime.Batch{}, false
				return json.Unmarshal(raw, &stored)
			}
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		// Before the batch: a write may be committed in part, and steps without a batch do no harm (see
		// UnfinishedBatches).
		for i, step := range steps {
			if _, err := tx.Exec("INSERT INTO batch_steps (batch, case_no, value) VALUES ($1, $2, $3)", b.ID, b.First()+i, step.Value); err != nil {
				return err
			}
			part := 0
			for data := range slices.Chunk(step.Expected, expectedPart) {
				if _, err := tx.Exec("INSERT INTO expected_output (batch, case_no, part, data) VALUES ($1, $2, $3, $4)", b.ID, b.First()+i, part, data); err != nil {
					return err
				}
				part++
			}
		}
		if b.Key != "" {
			if err := spend(tx, b, b.QueuedAt.Add(SpentKeyLife)); err != nil {
				return err
			}
		}
		_, err := tx.Exec("INSERT INTO batches (id, runner, environment, tenant, key, value, start) VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7)",
			b.ID, b.RunnerID, b.EnvironmentID, string(b.Tenant), b.Key, value, start)
		return err
	})
	return stored, added, err
}

// BatchStep returns the step and the start that AddBatch stored for a case.
func (s *Store) BatchStep(ctx context.Context, id runtime.BatchID, number int) (step, start []byte, err error) {
	err = s.reads.QueryRowContext(ctx, "SELECT s.value, b.start FROM batch_steps s JOIN batches b ON b.id = s.batch WHERE s.batch = $1 AND s.case_no = $2", id, number).
		Scan(&step, &start)
	return step, start, typed(err, "read a case")
}

// ExpectedOutput reads a case's expected output from an offset into p. It returns how many bytes it
// read: some, or 0 at the end.
func (s *Store) ExpectedOutput(ctx context.Context, at runtime.BatchPosition, offset int64, p []byte) (n int, err error) {
	var data []byte
	err = s.reads.QueryRowContext(ctx, "SELECT data FROM expected_output WHERE batch = $1 AND case_no = $2 AND part = $3", at.ID, at.Case, offset/expectedPart).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return copy(p, data[min(offset%expectedPart, int64(len(data))):]), typed(err, "read an expected output")
}

// CancelBatch records that a batch is to end.
func (s *Store) CancelBatch(ctx context.Context, id runtime.BatchID) error {
	return s.write(ctx, "cancel a batch", func(tx *transaction) error {
		_, err := tx.Exec("UPDATE batches SET cancelled = 1 WHERE id = $1 AND finished IS NULL", id)
		return err
	})
}

// FinishBatch stores the end of a batch.
func (s *Store) FinishBatch(ctx context.Context, b runtime.Batch) error {
	value, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return s.write(ctx, "store a batch", func(tx *transaction) error {
		_, err := tx.Exec("UPDATE batches SET value = $1, start = NULL, finished = $2 WHERE id = $3 AND finished IS NULL", value, b.FinishedAt.UnixMilli(), b.ID)
		if err == nil {
			err = deleteSteps(tx, "", b.ID) // needed only to continue the batch
		}
		return err
	})
}

// DropBatch deletes a batch of which no execution has begun, and its key.
func (s *Store) DropBatch(ctx context.Context, b runtime.Batch) error {
	return s.write(ctx, "drop a batch", func(tx *transaction) error {
		const unbegun = " AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = $2)"
		if b.Key != "" {
			if _, err := tx.Exec("DELETE FROM spent_keys WHERE key = $1"+unbegun, b.Key, b.ID); err != nil {
				return err
			}
		}
		if _, err := tx.Exec("DELETE FROM batches WHERE id = $1"+unbegun, b.ID, b.ID); err != nil {
			return err
		}
		return deleteSteps(tx, unbegun, b.ID, b.ID)
	})
}

// deleteSteps deletes what is stored about the cases of a batch, if also more is true.
func deleteSteps(tx *transaction, more string, ids ...any) error {
	_, err := tx.Exec("DELETE FROM batch_steps WHERE batch = $1"+more, ids...)
	if err == nil {
		_, err = tx.Exec("DELETE FROM expected_output WHERE batch = $1"+more, ids...)
	}
	return err
}

// Batch returns a batch, or BATCH_NOT_FOUND.
func (s *Store) Batch(ctx context.Context, id runtime.BatchID) (runtime.Batch, error) {
	b, found, err := s.batch(ctx, "SELECT value FROM batches WHERE id = $1", id)
	if err == nil && !found {
		err = NoBatch(id)
	}
	return b, err
}

// NoBatch returns BATCH_NOT_FOUND for an id.
func NoBatch(id runtime.BatchID) error {
	return runtime.Errorf(runtime.CodeBatchNotFound, "batch %s doesn't exist, or retention removed it", id)
}

// BatchByKey returns the batch with an idempotency key, and whether there is one.
func (s *Store) BatchByKey(ctx context.Context, key string) (runtime.Batch, bool, error) {
	return s.batch(ctx, "SELECT value FROM batches WHERE key = $1", key)
}

// batch returns the first batch that a statement selects, and whether there is one.
func (s *Store) batch(ctx context.Context, statement string, arg any) (runtime.Batch, bool, error) {
	return one[runtime.Batch](ctx, s, "read a batch", statement, arg)
}

// An UnfinishedBatch is an unfinished batch with what its owner needs to continue it.
type UnfinishedBatch struct {
	Batch     runtime.Batch
	Cancelled bool  // see CancelBatch
	Bytes     int64 // of the start and the largest step
}

// UnfinishedBatches returns all unfinished batches, oldest first, except unreadable ones: see
// Unreadable. It deletes leftovers of other batches, and finished batches without executions.
func (s *Store) UnfinishedBatches(ctx context.Context) ([]UnfinishedBatch, error) {
	const doing = "list unfinished batches"
	err := s.write(ctx, doing, func(tx *transaction) error {
		const finished = " WHERE batch NOT IN (SELECT id FROM batches WHERE finished IS NULL)"
		_, err := tx.Exec("DELETE FROM batch_steps" + finished)
		if err == nil {
			_, err = tx.Exec("DELETE FROM expected_output" + finished)
		}
		if err == nil {
			_, err = tx.Exec("DELETE FROM batches WHERE finished IS NOT NULL AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = batches.id)")
		}
		return err
	})
	if err != nil && runtime.CodeOf(err) != runtime.CodeStorageFull { // leftover rows do no harm
		return nil, err
	}
	rows, err := s.reads.QueryContext(ctx, `SELECT id, value, cancelled, coalesce(length(start), 0) + coalesce((SELECT max(length(s.value)) FROM batch_steps s WHERE s.batch = batches.id), 0)
		FROM batches WHERE finished IS NULL ORDER BY id`)
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	var all []UnfinishedBatch
	for rows.Next() {
		var id runtime.ExecutionID
		var value []byte
		var u UnfinishedBatch
		if err := rows.Scan(&id, &value, &u.Cancelled, &u.Bytes); err != nil {
			return nil, typed(err, doing)
		}
		if err := json.Unmarshal(value, &u.Batch); err != nil {
			s.unreadable.note(id, err)
			continue
		}
		all = append(all, u)
	}
	return all, typed(rows.Err(), doing)
}

// A BatchFilter selects batches; a zero field selects all.
type BatchFilter struct {
	RunnerID      runtime.RunnerID
	EnvironmentID runtime.EnvironmentID
	Tenant        *runtime.TenantID // nil: all
	NewestFirst   bool
}

// Batches returns at most first+1 batches after an id, and the number of all that match.
func (s *Store) Batches(ctx context.Context, q BatchFilter, first int, after runtime.BatchID) (all []runtime.Batch, total int, err error) {
	where, args := "true", []any{}
	if q.RunnerID != "" {
		where, args = where+" AND runner = "+parameters(len(args)+1, 1), append(args, q.RunnerID)
	}
	if q.EnvironmentID != "" {
		where, args = where+" AND environment = "+parameters(len(args)+1, 1), append(args, q.EnvironmentID)
	}
	if q.Tenant != nil {
		where, args = where+" AND tenant = "+parameters(len(args)+1, 1), append(args, string(*q.Tenant))
	}
	if err := s.reads.QueryRowContext(ctx, "SELECT count(*) FROM batches WHERE "+where, args...).Scan(&total); err != nil {
		return nil, 0, typed(err, "count batches")
	}
	order := fmt.Sprintf(" AND id > $%d ORDER BY id LIMIT $%d", len(args)+1, len(args)+2)
	if q.NewestFirst {
		order = fmt.Sprintf(" AND id < $%d ORDER BY id DESC LIMIT $%d", len(args)+1, len(args)+2)
		after = cmp.Or(after, "\U0010FFFF") // above all ids
	}
	rows, err := s.reads.QueryContext(ctx, "SELECT id, value FROM batches WHERE "+where+order, slices.Concat(args, []any{after, first + 1})...)
	if err != nil {
		return nil, 0, typed(err, "list batches")
	}
	defer rows.Close()
	for rows.Next() {
		var id runtime.ExecutionID
		var value []byte
		var b runtime.Batch
		if err := rows.Scan(&id, &value); err != nil {
			return nil, 0, typed(err, "list batches")
		}
		if err := json.Unmarshal(value, &b); err != nil {
			s.unreadable.note(id, err)
			continue
		}
		all = append(all, b)
	}
	return all, total, typed(rows.Err(), "list batches")
}

// BatchExecutions returns the executions of a batch's cases first to end-1, by case number. It
// calls charge with the size of each record in bytes, and returns charge's error.
func (s *Store) BatchExecutions(ctx context.Context, id runtime.BatchID, first, end int, charge func(bytes int) error) (map[int]runtime.Execution, error) {
	const doing = "list the executions of a batch"
	rows, err := s.reads.QueryContext(ctx, "SELECT id, case_no, value FROM executions WHERE batch = $1 AND case_no >= $2 AND case_no < $3", id, first, end)
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	all := map[int]runtime.Execution{}
	for rows.Next() {
		var execution runtime.ExecutionID
		var number int
		var value []byte
		var x runtime.Execution
		if err := rows.Scan(&execution, &number, &value); err != nil {
			return nil, typed(err, doing)
		}
		if err := charge(len(value)); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(value, &x); err != nil {
			s.unreadable.note(execution, err)
			continue
		}
		all[number] = x
	}
	return all, typed(rows.Err(), doing)
}

// BatchExecutionIDs returns the ids of a batch's executions, by case number.
func (s *Store) BatchExecutionIDs(ctx context.Context, id runtime.BatchID) (map[int]runtime.ExecutionID, error) {
	const doing = "list the executions of a batch"
	rows, err := s.reads.QueryContext(ctx, "SELECT id, case_no FROM executions WHERE batch = $1", id)
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	all := map[int]runtime.ExecutionID{}
	for rows.Next() {
		var execution runtime.ExecutionID
		var number int
		if err := rows.Scan(&execution, &number); err != nil {
			return nil, typed(err, doing)
		}
		all[number] = execution
	}
	return all, typed(rows.Err(), doing)
}

// batchesOf returns the batches of executions.
func batchesOf(tx *transaction, these string, ids []any) (all []runtime.BatchID, err error) {
	rows, err := tx.Query("SELECT DISTINCT batch FROM executions WHERE batch IS NOT NULL AND id"+these, ids...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id runtime.BatchID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, rows.Err()
}

// deleteEmpty deletes those of the batches that have finished and have no executions left. Their
// keys stay spent until keysExpire.
func deleteEmpty(tx *transaction, batches []runtime.BatchID, keysExpire time.Time) error {
	for _, id := range batches {
		var value []byte
		err := tx.QueryRow("SELECT value FROM batches WHERE finished IS NOT NULL AND id = $1 AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = batches.id)", id).Scan(&value)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		var b runtime.Batch
		if err := json.Unmarshal(value, &b); err == nil && b.Key != "" { // otherwise its key is unknown
			if err := spend(tx, b, keysExpire); err != nil {
				return err
			}
		}
		if _, err := tx.Exec("DELETE FROM batches WHERE id = $1", id); err != nil {
			return err
		}
	}
	return nil
}

// spend records that a batch's key was used.
func spend(tx *transaction, b runtime.Batch, expires time.Time) error {
	_, err := tx.Exec(putSpentKey, b.Key, b.Input, b.RunnerID, expires.Unix())
	return err
}
