package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// A BatchStep is what a batch's owner needs for one of its executions.
type BatchStep struct {
	Value    []byte
	Expected []byte // output, see ExpectedOutput
}

const expectedPart = 64 << 10

// AddBatch stores a new batch with what its owner needs: start, shared by all its executions, and
// its steps in order. Its key can't be used for an execution for a day. If another batch has the
// key already, AddBatch stores nothing and returns that batch and false.
func (s *Store) AddBatch(ctx context.Context, b runtime.Batch, start []byte, steps []BatchStep) (stored runtime.Batch, added bool, err error) {
	value, err := json.Marshal(b)
	if err != nil {
		return b, false, err
	}
	err = s.db.Write(ctx, "store a batch", func(tx *database.Tx) error {
		stored, added = runtime.Batch{}, false
		if found, err := byKey(tx, "batches", b.Key, &stored); found || err != nil {
			return err
		}
		stored, added = b, true
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
	err = s.db.QueryRow(ctx, "SELECT s.value, b.start FROM batch_steps s JOIN batches b ON b.id = s.batch WHERE s.batch = $1 AND s.case_no = $2", id, number).
		Scan(&step, &start)
	return step, start, database.Wrap(err, "read a case")
}

// ExpectedOutput reads a case's expected output from an offset into p. It returns how many bytes it
// read: some, or 0 at the end.
func (s *Store) ExpectedOutput(ctx context.Context, at runtime.BatchPosition, offset int64, p []byte) (n int, err error) {
	var data []byte
	err = s.db.QueryRow(ctx, "SELECT data FROM expected_output WHERE batch = $1 AND case_no = $2 AND part = $3", at.ID, at.Case, offset/expectedPart).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return copy(p, data[min(offset%expectedPart, int64(len(data))):]), database.Wrap(err, "read an expected output")
}

// CancelBatch records that a batch is to end.
func (s *Store) CancelBatch(ctx context.Context, id runtime.BatchID) error {
	return s.db.Exec(ctx, "cancel a batch", "UPDATE batches SET cancelled = 1 WHERE id = $1 AND finished IS NULL", id)
}

// FinishBatch stores the end of a batch.
func (s *Store) FinishBatch(ctx context.Context, b runtime.Batch) error {
	value, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, "store a batch", func(tx *database.Tx) error {
		_, err := tx.Exec("UPDATE batches SET value = $1, start = NULL, finished = $2 WHERE id = $3 AND finished IS NULL", value, b.FinishedAt.UnixMilli(), b.ID)
		if err == nil {
			err = deleteSteps(tx, "", b.ID) // needed only to continue the batch
		}
		return err
	})
}

// DropBatch deletes a batch of which no execution has begun, and its key.
func (s *Store) DropBatch(ctx context.Context, b runtime.Batch) error {
	return s.db.Write(ctx, "drop a batch", func(tx *database.Tx) error {
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
func deleteSteps(tx *database.Tx, more string, ids ...any) error {
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
// Unreadable. It deletes finished batches without executions.
func (s *Store) UnfinishedBatches(ctx context.Context) ([]UnfinishedBatch, error) {
	const doing = "list unfinished batches"
	err := s.db.Exec(ctx, doing, "DELETE FROM batches WHERE finished IS NOT NULL AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = batches.id)")
	if err != nil && runtime.CodeOf(err) != runtime.CodeStorageFull { // these rows do no harm
		return nil, err
	}
	var all []UnfinishedBatch
	err = s.db.Each(ctx, doing, func(scan func(...any) error) error {
		var id runtime.ExecutionID
		var value []byte
		var u UnfinishedBatch
		err := scan(&id, &value, &u.Cancelled, &u.Bytes)
		if err == nil && s.unreadable.decode(id, value, &u.Batch) {
			all = append(all, u)
		}
		return err
	}, `SELECT id, value, cancelled, coalesce(length(start), 0) + coalesce((SELECT max(length(s.value)) FROM batch_steps s WHERE s.batch = batches.id), 0)
		FROM batches WHERE finished IS NULL ORDER BY id`)
	return all, err
}

// A BatchFilter selects batches; a zero field selects all.
type BatchFilter struct {
	RunnerID      runtime.RunnerID
	EnvironmentID runtime.EnvironmentID
	Tenant        *runtime.TenantID // nil for all
	NewestFirst   bool
}

// Batches returns at most first+1 batches after an id, and the number of all that match.
func (s *Store) Batches(ctx context.Context, q BatchFilter, first int, after runtime.BatchID) (all []runtime.Batch, total int, err error) {
	selected := selection{id: "id"}
	selected.equal("runner", string(q.RunnerID))
	selected.equal("environment", string(q.EnvironmentID))
	selected.ofTenant("tenant", q.Tenant)
	if err := s.db.QueryRow(ctx, "SELECT count(*) FROM batches WHERE "+selected.where(), selected.args...).Scan(&total); err != nil {
		return nil, 0, database.Wrap(err, "count batches")
	}
	where := selected.page(q.NewestFirst, first+1, string(after))
	err = s.db.Each(ctx, "list batches", func(scan func(...any) error) error {
		var id runtime.ExecutionID
		var value []byte
		var b runtime.Batch
		err := scan(&id, &value)
		if err == nil && s.unreadable.decode(id, value, &b) {
			all = append(all, b)
		}
		return err
	}, "SELECT id, value FROM batches WHERE "+where, selected.args...)
	return all, total, err
}

// A CaseExecution is the execution of a case.
type CaseExecution struct {
	runtime.Execution
	Bytes int // of its record
}

// BatchExecutions returns the executions of a batch's cases first to until-1, by case number. until
// is end, or lower if these executions would exceed PageBytes. Only listsAtOnce lists run
// concurrently; others wait.
func (s *Store) BatchExecutions(ctx context.Context, b runtime.Batch, first, end int) (all map[int]CaseExecution, until int, err error) {
	leave, err := enter(ctx, s.listing, &b.Tenant)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	all = map[int]CaseExecution{}
	until, bytes := end, 0
	const statement = "SELECT id, case_no, value FROM executions WHERE batch = $1 AND case_no >= $2 AND case_no < $3 ORDER BY case_no LIMIT $4"
	err = s.inRounds(ctx, "list the executions of a batch", end-first, func(limit int) (string, []any) {
		return statement, []any{b.ID, first, end, limit}
	}, func(scan func(...any) error) error {
		var execution runtime.ExecutionID
		var number int
		var value []byte
		var x runtime.Execution
		if err := scan(&execution, &number, &value); err != nil {
			return err
		}
		if bytes += len(value); bytes > s.pageBytes && len(all) > 0 {
			until = number
			return database.ErrStop
		}
		first = number + 1
		if s.unreadable.decode(execution, value, &x) {
			all[number] = CaseExecution{x, len(value)}
		}
		return nil
	})
	return all, until, err
}

// BatchExecutionIDs returns the ids of a batch's executions, by case number.
func (s *Store) BatchExecutionIDs(ctx context.Context, id runtime.BatchID) (map[int]runtime.ExecutionID, error) {
	all := map[int]runtime.ExecutionID{}
	err := s.db.Each(ctx, "list the executions of a batch", func(scan func(...any) error) error {
		var execution runtime.ExecutionID
		var number int
		err := scan(&execution, &number)
		all[number] = execution
		return err
	}, "SELECT id, case_no FROM executions WHERE batch = $1", id)
	return all, err
}

func batchesOf(tx *database.Tx, these string, ids []any) (all []runtime.BatchID, err error) {
	err = tx.Each(func(scan func(...any) error) error {
		var id runtime.BatchID
		err := scan(&id)
		all = append(all, id)
		return err
	}, "SELECT DISTINCT batch FROM executions WHERE batch IS NOT NULL AND id"+these, ids...)
	return all, err
}

// deleteEmpty deletes those of the batches that have finished and have no executions left. Their
// keys stay spent until keysExpire.
func deleteEmpty(tx *database.Tx, batches []runtime.BatchID, keysExpire time.Time) error {
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
func spend(tx *database.Tx, b runtime.Batch, expires time.Time) error {
	_, err := tx.Exec(putSpentKey, b.Key, b.Input, b.RunnerID, expires.Unix())
	return err
}
