package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// unreadable are the executions that could not be read, and why.
type unreadable struct {
	mu   sync.Mutex // guards what follows
	rows map[runtime.ExecutionID]string
}

func (u *unreadable) note(id runtime.ExecutionID, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rows == nil {
		u.rows = map[runtime.ExecutionID]string{}
	}
	u.rows[id] = fmt.Sprintf("execution %s can't be read: %v", id, err)
}

// Unreadable tells, sorted, which executions could not be read since the store
// was opened: lists skip them.
func (s *Store) Unreadable() []string {
	s.unreadable.mu.Lock()
	defer s.unreadable.mu.Unlock()
	return slices.Sorted(maps.Values(s.unreadable.rows))
}

// executions returns the executions of a statement that selects id and value.
// Those that can't be read are noted, and skipped.
func (s *Store) executions(ctx context.Context, doing, statement string, args ...any) ([]runtime.Execution, error) {
	rows, err := s.reads.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	var all []runtime.Execution
	for rows.Next() {
		var id runtime.ExecutionID
		var value []byte
		var x runtime.Execution
		if err := rows.Scan(&id, &value); err != nil {
			return nil, typed(err, doing)
		}
		if err := json.Unmarshal(value, &x); err != nil {
			s.unreadable.note(id, err)
			continue
		}
		all = append(all, x)
	}
	return all, typed(rows.Err(), doing)
}
