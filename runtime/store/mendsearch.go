package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

const (
	mendReads  = 1000 // rows compared at a time
	mendWrites = 32   // rows written in one transaction; a command may have 1 MiB
)

// mending brings execution_search up to date in the background, until the store closes or another
// one leads.
func (s *Store) mending(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.group.Go(func() {
		<-s.closed
		cancel()
	})
	s.group.Go(func() {
		pause := backoff.Backoff{First: time.Second, Last: time.Minute}
		for {
			err := s.mendSearch(ctx)
			if err == nil {
				close(s.mended)
			}
			if err == nil || errors.Is(err, ErrTaken) || pause.Wait(ctx) != nil {
				return
			}
		}
	})
}

// mendSearch brings execution_search up to date with what older servers without this table stored
// or deleted before this one led, and with writes that were committed in part.
func (s *Store) mendSearch(ctx context.Context) error {
	// First the executions whose terms are missing or outdated.
	err := s.mendRows(ctx, `SELECT e.id, s.execution IS NULL OR s.outcome = '' AND e.finished IS NOT NULL
		FROM (SELECT id, finished FROM executions WHERE id > $1 ORDER BY id LIMIT $2) e LEFT JOIN execution_search s ON s.execution = e.id ORDER BY e.id`, addTerms)
	if err != nil {
		return err
	}
	// Then the terms of executions that no longer exist.
	return s.mendRows(ctx, `SELECT s.execution, e.id IS NULL
		FROM (SELECT execution FROM execution_search WHERE execution > $1 ORDER BY execution LIMIT $2) s LEFT JOIN executions e ON e.id = s.execution ORDER BY s.execution`, deleteTerms)
}

// mendRows mends the rows that a statement reports as wrong. Other writes run in between.
func (s *Store) mendRows(ctx context.Context, statement string, mend func(*transaction, []runtime.ExecutionID) error) error {
	const doing = "make executions searchable"
	for after := runtime.ExecutionID(""); ; {
		wrong, last, err := s.wrongRows(ctx, statement, after)
		if err != nil {
			return typed(err, doing)
		}
		if last == "" {
			return nil
		}
		after = last
		for some := range slices.Chunk(wrong, mendWrites) {
			if err := s.write(ctx, doing, func(tx *transaction) error { return mend(tx, some) }); err != nil {
				return err
			}
		}
	}
}

// wrongRows returns the wrong rows after an id, and the id of the last row compared; "": there are
// no more.
func (s *Store) wrongRows(ctx context.Context, statement string, after runtime.ExecutionID) (all []runtime.ExecutionID, last runtime.ExecutionID, err error) {
	rows, err := s.reads.QueryContext(ctx, statement, after, mendReads)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var wrong bool
		if err := rows.Scan(&last, &wrong); err != nil {
			return nil, "", err
		}
		if wrong {
			all = append(all, last)
		}
	}
	return all, last, rows.Err()
}

// addTerms makes stored executions searchable. Unreadable ones aren't found by searches.
func addTerms(tx *transaction, ids []runtime.ExecutionID) error {
	all, err := storedTerms(tx, ids)
	if err != nil {
		return err
	}
	for _, t := range all {
		if err := putTerms(tx, t); err != nil {
			return err
		}
	}
	return nil
}

// storedTerms returns the search terms of those stored executions that can be read.
func storedTerms(tx *transaction, ids []runtime.ExecutionID) (all []terms, err error) {
	these, args := among(ids)
	rows, err := tx.Query("SELECT id, value FROM executions WHERE id"+these, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id runtime.ExecutionID
		var value []byte
		if err := rows.Scan(&id, &value); err != nil {
			return nil, err
		}
		var x runtime.Execution
		if json.Unmarshal(value, &x) == nil && x.ID == id {
			all = append(all, termsOf(x))
		}
	}
	return all, rows.Err()
}

// deleteTerms deletes the search terms of deleted executions.
func deleteTerms(tx *transaction, ids []runtime.ExecutionID) error {
	these, args := among(ids)
	_, err := tx.ExecOnce("DELETE FROM execution_search WHERE execution"+these+" AND NOT EXISTS (SELECT 1 FROM executions WHERE id = execution)", args...)
	return err
}
