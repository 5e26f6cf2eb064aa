package store

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/rockpool/rockpool/runtime"
)

// unreadable records the executions that could not be read, and why.
type unreadable struct {
	mu   sync.Mutex // guards the fields below
	rows map[runtime.ExecutionID]string
}

// note records that an execution's row can't be read; health reports it.
func (u *unreadable) note(id runtime.ExecutionID, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rows == nil {
		u.rows = map[runtime.ExecutionID]string{}
	}
	u.rows[id] = fmt.Sprintf("execution %s can't be read: %v", id, err)
}

// Unreadable returns messages, sorted, about the executions that could not be read since the store
// was opened. Lists leave these out.
func (s *Store) Unreadable() []string {
	s.unreadable.mu.Lock()
	defer s.unreadable.mu.Unlock()
	return slices.Sorted(maps.Values(s.unreadable.rows))
}
