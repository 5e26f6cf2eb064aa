package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// AddExecution stores a new execution with what its owner needs to continue it after a restart (see
// Unfinished). If another execution has the key already, it stores nothing and returns that one and
// false.
func (s *Store) AddExecution(ctx context.Context, x runtime.Execution, start []byte) (runtime.Execution, bool, error) {
	value, err := json.Marshal(x)
	if err != nil {
		return x, false, err
	}
	// Outside the write, which runs in the only writer.
	t := termsOf(x)
	var stored runtime.Execution
	var added bool
	err = s.db.Write(ctx, "store an execution", func(tx *database.Tx) error {
		stored, added = runtime.Execution{}, false
		if found, err := byKey(tx, "executions", x.Key, &stored); found || err != nil {
			return err
		}
		stored, added = x, true
		if _, err := tx.Exec("INSERT INTO restarts (execution, start) VALUES ($1, $2)", x.ID, start); err != nil {
			return err
		}
		if err := putTerms(tx, t); err != nil {
			return err
		}
		var batch, caseNumber any // NULL: not part of a batch
		if x.Batch != nil {
			batch, caseNumber = x.Batch.ID, x.Batch.Case
		}
		_, err := tx.Exec("INSERT INTO executions (id, runner, environment, tenant, state, key, value, batch, case_no) VALUES ($1, $2, $3, $4, $5, nullif($6, ''), $7, $8, $9)",
			x.ID, x.RunnerID, x.EnvironmentID, string(x.Tenant), x.State, x.Key, value, batch, caseNumber)
		return err
	})
	return stored, added, err
}

// byKey reads the object with a key, if there is one; "" is no key.
func byKey(tx *database.Tx, table, key string, into any) (found bool, err error) {
	if key == "" {
		return false, nil
	}
	var value []byte
	err = tx.QueryRow("SELECT value FROM "+table+" WHERE key = $1", key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(value, into)
	}
	return true, err
}

// PutExecution replaces an unfinished execution. A finished one stays unchanged. start replaces what
// AddExecution stored, and inputEnd is what NoteInputEnd would store; with nil neither changes.
func (s *Store) PutExecution(ctx context.Context, x runtime.Execution, start []byte, inputEnd *int64) error {
	value, err := json.Marshal(x)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, "store an execution", func(tx *database.Tx) error {
		_, err := tx.Exec("UPDATE executions SET state = $1, value = $2 WHERE id = $3 AND finished IS NULL", x.State, value, x.ID)
		if err == nil && start != nil {
			_, err = tx.Exec("UPDATE restarts SET start = $1, input_end = coalesce(input_end, $2) WHERE execution = $3", start, inputEnd, x.ID)
		}
		return err
	})
}

// FinishExecution stores the end of an execution. bytes is the disk use of its output; kept is that of
// everything stored about it. In the same transaction it adds the execution's usage to its tenant's day.
// Repeated calls add nothing more: see DayUse.
func (s *Store) FinishExecution(ctx context.Context, x runtime.Execution, bytes int64) (kept int64, err error) {
	value, err := json.Marshal(x)
	if err != nil {
		return 0, err
	}
	outcome, failed := endOf(x)
	kept = bytes + int64(len(value)) + termBytes(x)
	return kept, s.db.Write(ctx, "store an execution", func(tx *database.Tx) error {
		result, err := tx.Exec("UPDATE executions SET state = $1, value = $2, finished = $3, bytes = $4 WHERE id = $5 AND finished IS NULL",
			x.State, value, x.Timestamps.FinishedAt.UnixMilli(), kept, x.ID)
		if err == nil {
			_, err = tx.Exec("DELETE FROM restarts WHERE execution = $1", x.ID)
		}
		if err == nil {
			_, err = tx.Exec("UPDATE execution_search SET outcome = $1, failed = $2 WHERE execution = $3 AND outcome = ''", outcome, failed, x.ID)
		}
		if err != nil {
			return err
		}
		// The tenant's day already contains an execution that had finished before.
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return s.addToDay(tx, x)
	})
}

// Execution returns an execution, or EXECUTION_NOT_FOUND.
func (s *Store) Execution(ctx context.Context, id runtime.ExecutionID) (runtime.Execution, error) {
	x, found, err := s.execution(ctx, "SELECT value FROM executions WHERE id = $1", id)
	if err == nil && !found {
		err = NotFound(id)
	}
	return x, err
}

// NotFound returns EXECUTION_NOT_FOUND for an id.
func NotFound(id runtime.ExecutionID) error {
	return runtime.Errorf(runtime.CodeExecutionNotFound, "execution %s doesn't exist, or retention removed it", id)
}

// ExecutionByKey returns the execution with an idempotency key, and whether there is one.
func (s *Store) ExecutionByKey(ctx context.Context, key string) (runtime.Execution, bool, error) {
	return s.execution(ctx, "SELECT value FROM executions WHERE key = $1", key)
}

func (s *Store) execution(ctx context.Context, statement string, arg any) (runtime.Execution, bool, error) {
	return one[runtime.Execution](ctx, s, "read an execution", statement, arg)
}

// one decodes the only column of a statement's first row from JSON, and returns whether there is a row.
func one[T any](ctx context.Context, s *Store, doing, statement string, arg any) (value T, found bool, err error) {
	var text []byte
	err = s.db.QueryRow(ctx, statement, arg).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) || database.HasNUL(err) { // no id or key contains NUL
		return value, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	return value, err == nil, database.Wrap(err, doing)
}

// An ExecutionFilter selects executions; a zero field selects all.
type ExecutionFilter struct {
	RunnerID      runtime.RunnerID
	EnvironmentID runtime.EnvironmentID
	Tenant        *runtime.TenantID // nil for all
	States        []runtime.ExecutionState
	Outcomes      []runtime.Outcome
	Failed        *bool                 // whether Execution.Failed or Execution.Accepted, nil for all
	Labels        []runtime.LabelFilter // all must match
	Command       string                // in the first SearchedBytes of the command line; ignores case
	Text          string                // there, or in a label as name=value, where only the case of ASCII is ignored
	From          time.Time             // queued then or later
	To            time.Time             // queued earlier
	NewestFirst   bool
}

// An ExecutionPage is a page of the selected executions.
type ExecutionPage struct {
	Executions []runtime.Execution
	Sizes      []int // of their records, in bytes
	More       bool  // others follow
	Total      int   // of all pages

	bytes int // of the records that were read
}

// Executions returns at most first executions after an id, oldest first or, with NewestFirst,
// newest first. Unreadable ones are recorded and left out. A page ends before it exceeds PageBytes,
// but it has one execution if there is any. Only searchesAtOnce searches and listsAtOnce other lists
// run concurrently; others wait.
func (s *Store) Executions(ctx context.Context, q ExecutionFilter, first int, after runtime.ExecutionID) (ExecutionPage, error) {
	limiter := s.listing
	if q.searches() {
		limiter = s.searching
	}
	leave, err := enter(ctx, limiter, q.Tenant)
	if err != nil {
		return ExecutionPage{}, err
	}
	defer leave()
	all, counted := q.selections()
	from := after
	var page ExecutionPage
	// Each round reads one row more than the page has room for, to learn whether others follow.
	for seen, wanted := 1, 1; seen == wanted && !page.More; page.Total += seen {
		wanted = min(first-len(page.Executions)+1, s.roundRows) // another round also if some were unreadable
		round := all
		where := round.page(q.NewestFirst, wanted, string(from))
		seen = 0
		err := s.db.Each(ctx, "list executions", func(scan func(...any) error) error {
			seen++
			return s.readPage(scan, &page, first, &from)
		}, "SELECT id, value FROM "+all.from+" WHERE "+where, round.args...)
		if err != nil {
			return ExecutionPage{}, err
		}
	}
	if after == "" && !page.More {
		return page, nil // the page has all
	}
	err = s.db.QueryRow(ctx, "SELECT count(*) FROM "+counted.from+" WHERE "+counted.where(), counted.args...).Scan(&page.Total)
	if err != nil {
		return ExecutionPage{}, database.Wrap(err, "count executions")
	}
	return page, nil
}

// PageBytes is the most bytes of the stored records in a page.
const PageBytes = 2 << 20

// roundRows bounds the rows of one result of a list in PostgreSQL. PostgreSQL sends all of them, even those
// that don't fit into the page.
const roundRows = 64

// listsAtOnce bounds how many pages are read concurrently, because a page's memory isn't counted
// while it is read. Others wait, and tenants take turns. One tenant alone reads half of them.
const listsAtOnce = 8

// allTenants is the turn of lists for all tenants. No tenant has this name.
const allTenants runtime.TenantID = "*"

// enter waits for the turn of a list for one tenant, or for all if it is nil. The tenant's callers take
// turns, too. Call leave afterwards.
func enter(ctx context.Context, limiter *fairqueue.Limiter, only *runtime.TenantID) (leave func(), err error) {
	tenant := allTenants
	if only != nil {
		tenant = *only
	}
	return limiter.Waiter(tenant, access.FromContext(ctx).ID, 0).Enter(ctx)
}

// inRounds reads a list of at most most rows. statement returns how to read the next rows, at most limit.
// add adds a row. It returns [database.ErrStop] if the page is full.
func (s *Store) inRounds(ctx context.Context, doing string, most int, statement func(limit int) (text string, args []any), add func(scan func(...any) error) error) error {
	for more := true; more && most > 0; {
		limit, seen, full := min(most, s.roundRows), 0, false
		text, args := statement(limit)
		err := s.db.Each(ctx, doing, func(scan func(...any) error) error {
			seen++
			err := add(scan)
			full = errors.Is(err, database.ErrStop)
			return err
		}, text, args...)
		if err != nil {
			return err
		}
		more = seen == limit && !full
		most -= seen
	}
	return nil
}

// readPage adds a row to a page unless it is full, and sets id to the row's.
func (s *Store) readPage(scan func(...any) error, page *ExecutionPage, first int, id *runtime.ExecutionID) error {
	var value []byte
	var x runtime.Execution
	if err := scan(id, &value); err != nil {
		return err
	}
	page.bytes += len(value)
	if page.More = len(page.Executions) == first || page.bytes > s.pageBytes && len(page.Executions) > 0; page.More {
		return database.ErrStop
	}
	if s.unreadable.decode(*id, value, &x) {
		page.Executions, page.Sizes = append(page.Executions, x), append(page.Sizes, len(value))
	}
	return nil
}

// SpentKeyLife is how long a key stays spent after its object is gone.
const SpentKeyLife = 24 * time.Hour

// A SpentKey is the idempotency key of a claim whose runner is gone.
type SpentKey struct {
	Key     string
	Input   string // digest of the request made with it
	Runner  runtime.RunnerID
	Expires time.Time
}

// putSpentKey replaces the entry of a key that is spent again.
const putSpentKey = `INSERT INTO spent_keys (key, input, runner, expires) VALUES ($1, $2, $3, $4)
	ON CONFLICT (key) DO UPDATE SET input = excluded.input, runner = excluded.runner, expires = excluded.expires`

// PutSpentKey stores a key and deletes expired ones.
func (s *Store) PutSpentKey(ctx context.Context, k SpentKey, now time.Time) error {
	return s.db.Write(ctx, "store a spent key", func(tx *database.Tx) error {
		if _, err := tx.Exec("DELETE FROM spent_keys WHERE expires < $1", now.Unix()); err != nil {
			return err
		}
		_, err := tx.Exec(putSpentKey, k.Key, k.Input, k.Runner, k.Expires.Unix())
		return err
	})
}

// ForgetSpentKeys deletes all keys with a prefix.
func (s *Store) ForgetSpentKeys(ctx context.Context, prefix string) error {
	return s.db.Exec(ctx, "forget spent keys", "DELETE FROM spent_keys WHERE substr(key, 1, length($1)) = $1", prefix)
}

// SpentKey returns what is stored about a key that hasn't expired at now, and whether anything is.
func (s *Store) SpentKey(ctx context.Context, key string, now time.Time) (SpentKey, bool, error) {
	k := SpentKey{Key: key}
	var expires int64
	err := s.db.QueryRow(ctx, "SELECT input, runner, expires FROM spent_keys WHERE key = $1 AND expires >= $2", key, now.Unix()).
		Scan(&k.Input, &k.Runner, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return SpentKey{}, false, nil
	}
	k.Expires = time.Unix(expires, 0)
	return k, err == nil, database.Wrap(err, "read a spent key")
}

// An Unfinished is an unfinished execution with what its owner needs to continue it.
type Unfinished struct {
	Execution runtime.Execution
	Start     []byte             // from AddExecution
	Killed    runtime.Outcome    // see NoteKilled
	InputEnd  *int64             // see NoteInputEnd
	Gone      runtime.GoneReason // see NoteGone
}

// Unfinished returns all unfinished executions, oldest first, except unreadable ones: see Unreadable.
func (s *Store) Unfinished(ctx context.Context) ([]Unfinished, error) {
	var all []Unfinished
	err := s.db.Each(ctx, "list unfinished executions", func(scan func(...any) error) error {
		var id runtime.ExecutionID
		var value []byte
		var u Unfinished
		err := scan(&id, &value, &u.Start, &u.Killed, &u.InputEnd, &u.Gone)
		if err == nil && s.unreadable.decode(id, value, &u.Execution) {
			all = append(all, u)
		}
		return err
	}, `SELECT e.id, e.value, r.start, coalesce(r.killed, ''), r.input_end, coalesce(r.gone, '')
		FROM executions e LEFT JOIN restarts r ON r.execution = e.id WHERE e.state <> 'FINISHED' ORDER BY e.id`)
	return all, err
}

// NoteKilled stores why an execution is being killed; the first reason stays.
func (s *Store) NoteKilled(ctx context.Context, id runtime.ExecutionID, outcome runtime.Outcome) error {
	return s.db.Exec(ctx, "note a kill", "UPDATE restarts SET killed = coalesce(killed, $1) WHERE execution = $2", outcome, id)
}

// NoteGone stores why the runner of unfinished executions is about to be removed, because nothing
// else will say it afterwards. The last reason counts.
func (s *Store) NoteGone(ctx context.Context, id runtime.RunnerID, reason runtime.GoneReason) error {
	return s.db.Exec(ctx, "note the end of a runner", "UPDATE restarts SET gone = $1 WHERE execution IN (SELECT id FROM executions WHERE runner = $2 AND state <> 'FINISHED')", reason, id)
}

// NoteInputEnd stores that an execution's stdin was closed at an offset.
func (s *Store) NoteInputEnd(ctx context.Context, id runtime.ExecutionID, offset int64) error {
	return s.db.Exec(ctx, "note the end of a stdin", "UPDATE restarts SET input_end = $1 WHERE execution = $2", offset, id)
}

// Released reports whether a runner should have been released with one of its executions, or its
// batch, and that has ended.
func (s *Store) Released(ctx context.Context, id runtime.RunnerID) (bool, error) {
	released := false
	err := s.db.Each(ctx, "look for a release", func(scan func(...any) error) error {
		var value []byte
		var ended struct{ Release bool }
		err := scan(&value)
		released = released || err == nil && json.Unmarshal(value, &ended) == nil && ended.Release
		return err
	}, `SELECT value FROM executions WHERE runner = $1 AND finished IS NOT NULL
		UNION ALL SELECT value FROM batches WHERE runner = $1 AND finished IS NOT NULL`, id)
	return released, err
}

// Neighbours reports whether any execution of a runner ended after since, in whole milliseconds.
func (s *Store) Neighbours(ctx context.Context, id runtime.RunnerID, since time.Time) (bool, error) {
	var there bool
	err := s.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM executions WHERE runner = $1 AND finished > $2)", id, since.UnixMilli()).Scan(&there)
	return there, database.Wrap(err, "look for neighbours")
}
