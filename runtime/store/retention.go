package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// FinishedBytes returns the disk use of all finished executions.
func (s *Store) FinishedBytes(ctx context.Context) (int64, error) {
	var sum int64
	err := s.db.QueryRow(ctx, "SELECT coalesce(sum(bytes), 0) FROM executions WHERE finished IS NOT NULL").Scan(&sum)
	return sum, database.Wrap(err, "count what is kept")
}

// A TenantsRest counts what is stored of a tenant's executions.
type TenantsRest struct {
	Executions int
	Unfinished int       // executions and batches
	LastEnd    time.Time // end of the last finished one
}

// OfTenant returns counts of what is stored of a tenant's executions.
func (s *Store) OfTenant(ctx context.Context, id runtime.TenantID) (rest TenantsRest, err error) {
	var batches int
	var last int64
	err = s.db.QueryRow(ctx, `SELECT count(*), count(*) - count(finished), coalesce(max(finished), 0),
		(SELECT count(*) FROM batches WHERE tenant = $1 AND finished IS NULL) FROM executions WHERE tenant = $1`, string(id)).Scan(&rest.Executions, &rest.Unfinished, &last, &batches)
	rest.Unfinished += batches
	rest.LastEnd = time.UnixMilli(last)
	return rest, database.Wrap(err, "count a tenant's executions")
}

// A Finished is an execution that retention may remove.
type Finished struct {
	ID    runtime.ExecutionID
	At    time.Time
	Bytes int64 // disk use
}

// Oldest returns at most most executions, those that finished first. It leaves out those of unfinished
// batches, because the next server needs them to continue the batch.
func (s *Store) Oldest(ctx context.Context, most int) ([]Finished, error) {
	var all []Finished
	err := s.db.Each(ctx, "list the oldest executions", func(scan func(...any) error) error {
		var f Finished
		var at int64
		err := scan(&f.ID, &at, &f.Bytes)
		f.At = time.UnixMilli(at)
		all = append(all, f)
		return err
	}, `SELECT id, finished, bytes FROM executions WHERE finished IS NOT NULL
		AND (batch IS NULL OR batch NOT IN (SELECT id FROM batches WHERE finished IS NULL)) ORDER BY finished, bytes LIMIT $1`, most)
	return all, err
}

// DeleteExecutions deletes finished executions, all or none. Their keys stay spent until
// keysExpire, so that a late retry starts nothing again. Their output must be removed afterwards:
// see Removals. A batch is deleted with the last of its executions.
func (s *Store) DeleteExecutions(ctx context.Context, ids []runtime.ExecutionID, keysExpire time.Time) error {
	if len(ids) == 0 {
		return nil
	}
	these, args := among(ids)
	return s.db.Write(ctx, "delete executions", func(tx *database.Tx) error {
		_, err := tx.ExecOnce("INSERT INTO removals (execution) SELECT id FROM executions WHERE finished IS NOT NULL AND id"+these+" ON CONFLICT DO NOTHING", args...)
		if err != nil {
			return err
		}
		spent, err := keysOf(tx, these, args)
		if err != nil {
			return err
		}
		for _, k := range spent {
			if _, err := tx.Exec("INSERT INTO spent_keys (key, input, runner, expires) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING", k.Key, k.Input, k.Runner, keysExpire.Unix()); err != nil {
				return err
			}
		}
		// After the delete, no row would name the batches.
		batches, err := batchesOf(tx, these, args)
		if err == nil {
			_, err = tx.ExecOnce("DELETE FROM executions WHERE finished IS NOT NULL AND id"+these, args...)
		}
		if err == nil {
			_, err = tx.ExecOnce("DELETE FROM execution_search WHERE execution"+these+" AND NOT EXISTS (SELECT 1 FROM executions WHERE id = execution)", args...)
		}
		if err == nil {
			err = deleteEmpty(tx, batches, keysExpire)
		}
		return err
	})
}

// keysOf returns the keys of those of some executions that have finished. The key of an unreadable one is
// unknown.
func keysOf(tx *database.Tx, these string, ids []any) (all []SpentKey, err error) {
	err = tx.Each(func(scan func(...any) error) error {
		var k SpentKey
		var value []byte
		var x struct{ Input string } // the other fields may be unreadable
		err := scan(&k.Key, &k.Runner, &value)
		if err == nil && json.Unmarshal(value, &x) == nil {
			k.Input = x.Input
			all = append(all, k)
		}
		return err
	}, "SELECT key, runner, value FROM executions WHERE key IS NOT NULL AND finished IS NOT NULL AND id"+these, ids...)
	return all, err
}

// Removals returns deleted executions whose output must still be removed.
func (s *Store) Removals(ctx context.Context) ([]runtime.ExecutionID, error) {
	return s.ids(ctx, "list output to be removed", "SELECT execution FROM removals WHERE NOT EXISTS (SELECT 1 FROM executions WHERE id = execution)")
}

// MarkOutputRemoved records that the output of deleted executions was removed. In a shared database
// it deletes it.
func (s *Store) MarkOutputRemoved(ctx context.Context, ids []runtime.ExecutionID) error {
	if len(ids) == 0 {
		return nil
	}
	most := mostParameters
	if s.db.Shared() {
		most = 4 // may delete 40 MB, and blocks other writes meanwhile
	}
	for part := range slices.Chunk(ids, most) {
		these, args := among(part)
		err := s.db.Write(ctx, "note that output was removed", func(tx *database.Tx) error {
			if s.db.Shared() {
				if _, err := tx.ExecOnce("DELETE FROM output WHERE execution"+these, args...); err != nil {
					return err
				}
			}
			_, err := tx.ExecOnce("DELETE FROM removals WHERE execution"+these, args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Unknown returns those of some executions that this database has no trace of: they aren't stored,
// and their output isn't waiting to be removed.
func (s *Store) Unknown(ctx context.Context, ids []runtime.ExecutionID) ([]runtime.ExecutionID, error) {
	known := map[runtime.ExecutionID]bool{}
	for part := range slices.Chunk(ids, mostParameters) {
		these, args := among(part)
		found, err := s.ids(ctx, "look for executions", "SELECT id FROM executions WHERE id"+these+" UNION SELECT execution FROM removals WHERE execution"+these, args...)
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			known[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id runtime.ExecutionID) bool { return known[id] }), nil
}

// ids returns the executions that a statement selects. In an error, doing says what for.
func (s *Store) ids(ctx context.Context, doing, statement string, args ...any) (all []runtime.ExecutionID, err error) {
	err = s.db.Each(ctx, doing, func(scan func(...any) error) error {
		var id runtime.ExecutionID
		err := scan(&id)
		all = append(all, id)
		return err
	}, statement, args...)
	return all, err
}

// HasExecution reports whether an execution is stored.
func (s *Store) HasExecution(ctx context.Context, id runtime.ExecutionID) (bool, error) {
	var there bool
	err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM executions WHERE id = $1)", id).Scan(&there)
	return there, database.Wrap(err, "look for an execution")
}

// Free pages of a SQLite file, of 4 KiB.
const (
	pagesKept   = 1024 // for later rows
	pagesAtOnce = 2048 // a write of less than 0.1 s
	shrinksMost = 16   // per call
)

// Shrink returns free space of the database's file to the file system, at most 128 MiB per call. A
// shared database needs none.
func (s *Store) Shrink(ctx context.Context) error {
	const doing = "shrink the database"
	if s.db.Shared() {
		return nil
	}
	for range shrinksMost {
		var free int64
		if err := s.db.QueryRow(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
			return database.Wrap(err, doing)
		}
		if free <= pagesKept {
			return nil
		}
		err := s.db.Rewrite(ctx, doing, func(tx *database.Tx) error {
			_, err := tx.ExecOnce(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(pagesAtOnce, free-pagesKept)))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
