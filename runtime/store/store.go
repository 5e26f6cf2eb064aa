// Package store keeps what outlives the server in a database: executions and spent keys for the engine;
// environments, runners and claims for a local cluster. Package database says when a write is durable. A
// database that several servers share also stores the output of executions. Methods are safe for concurrent use.
package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// A Store is an open database. Close it.
type Store struct {
	db         *database.DB
	searching  *fairqueue.Limiter // limits concurrent searches
	listing    *fairqueue.Limiter // limits concurrent reads of other pages
	pageBytes  int                // PageBytes, or less in tests
	roundRows  int                // of one result of a list; SQLite reads row by row, so it has no bound
	unreadable unreadable
	oldestDay  string // oldest day that addToDay kept; owned by the writer
}

// Open opens the SQLite database at path as database.Open does.
func Open(ctx context.Context, path string) (*Store, error) {
	return opened(database.Open(ctx, path))
}

// OpenShared opens a PostgreSQL database as database.OpenShared does.
func OpenShared(ctx context.Context, url string) (*Store, error) {
	return opened(database.OpenShared(ctx, url))
}

func opened(db *database.DB, err error) (*Store, error) {
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, searching: fairqueue.NewLimiter(searchesAtOnce), listing: fairqueue.NewSharedLimiter(listsAtOnce), pageBytes: PageBytes, roundRows: math.MaxInt}
	if s.Shared() {
		s.roundRows = roundRows
	}
	return s, nil
}

// ErrTaken says that another store leads now.
var ErrTaken = database.ErrTaken

// Lead makes this store the only one that writes: see database.DB.Lead.
func (s *Store) Lead(ctx context.Context) error { return s.db.Lead(ctx) }

// Taken returns a channel that is closed when a write found that another store leads now.
func (s *Store) Taken() <-chan struct{} { return s.db.Taken() }

// Leads returns nil if this store leads: see database.DB.Leads.
func (s *Store) Leads(ctx context.Context) error { return s.db.Leads(ctx) }

// Shared reports whether other servers may have the database open too. If so, it stores the output of
// executions.
func (s *Store) Shared() bool { return s.db.Shared() }

// Fresh reports whether the database was missing or empty when the store was opened.
func (s *Store) Fresh() bool { return s.db.Fresh() }

// Check returns nil if the database works: see database.DB.Check.
func (s *Store) Check(ctx context.Context) error { return s.db.Check(ctx) }

// Secret returns the secret of that name that servers share. If there is none, it stores fresh.
func (s *Store) Secret(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	return s.db.Secret(ctx, name, fresh)
}

// Close waits for running writes and closes the database. Later writes return CLUSTER_UNAVAILABLE.
func (s *Store) Close() error { return s.db.Close() }

// mostParameters bounds the parameters of a statement to what every database accepts.
const mostParameters = 1000

// parameters returns n parameters of a statement, as "$3, $4".
func parameters(first, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = "$" + strconv.Itoa(first+i)
	}
	return strings.Join(all, ", ")
}

// among returns the condition, to follow a column's name, that it is one of ids. There must be at
// least one. The ids are the statement's first parameters.
func among(ids []runtime.ExecutionID) (these string, args []any) {
	for _, id := range ids {
		args = append(args, id)
	}
	return " IN (" + parameters(1, len(ids)) + ")", args
}

// unreadable records the executions and batches that could not be read, and why.
type unreadable struct {
	mu   sync.Mutex // guards rows
	rows map[runtime.ExecutionID]string
}

// decode decodes a stored object. It reports whether it could; if not, health reports the object.
func (u *unreadable) decode(id runtime.ExecutionID, value []byte, into any) bool {
	err := json.Unmarshal(value, into)
	if err == nil {
		return true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rows == nil {
		u.rows = map[runtime.ExecutionID]string{}
	}
	u.rows[id] = fmt.Sprintf("execution %s can't be read: %v", id, err)
	return false
}

// Unreadable returns messages, sorted, about the executions that could not be read since the store
// was opened. Lists leave these out.
func (s *Store) Unreadable() []string {
	s.unreadable.mu.Lock()
	defer s.unreadable.mu.Unlock()
	return slices.Sorted(maps.Values(s.unreadable.rows))
}
