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
			x.State, value, x.Marks.FinishedAt.UnixMilli(), kept, x.ID)
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
	order := []any{all.id, ">", len(all.args) + 1, all.id, "", len(all.args) + 2}
	from := after
	if q.NewestFirst {
		order[1], order[4] = "<", " DESC"
		from = cmp.Or(from, "\U0010FFFF") // above all ids
	}
	statement := "SELECT id, value FROM " + all.from + " WHERE " + all.where() + fmt.Sprintf(" AND %s %s $%d ORDER BY %s%s LIMIT $%d", order...)
	var page ExecutionPage
	// Each round reads one row more than the page has room for, to learn whether others follow.
	for seen, wanted := 1, 1; seen == wanted && !page.More; page.Total += seen {
		wanted = min(first-len(page.Executions)+1, s.roundRows) // another round also if some were unreadable
		rows, err := s.db.Query(ctx, statement, slices.Concat(all.args, []any{from, wanted})...)
		if err != nil {
			return ExecutionPage{}, database.Wrap(err, "list executions")
		}
		seen, from, err = s.readPage(rows, &page, first)
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

// inRounds reads at most most rows of a list. query returns the next ones, at most limit. add adds one,
// and reports whether the page is full.
func (s *Store) inRounds(doing string, most int, query func(limit int) (*database.Rows, error), add func(scan func(...any) error) (full bool, err error)) error {
	for more := true; more && most > 0; {
		limit := min(most, s.roundRows)
		rows, err := query(limit)
		if err != nil {
			return database.Wrap(err, doing)
		}
		seen, full, err := readRound(rows, add)
		if err != nil {
			return database.Wrap(err, doing)
		}
		more = seen == limit && !full
		most -= seen
	}
	return nil
}

// readRound adds rows until the page is full or rows end. It returns how many it added.
func readRound(rows *database.Rows, add func(scan func(...any) error) (full bool, err error)) (seen int, full bool, err error) {
	defer rows.Close()
	for rows.Next() {
		if full, err = add(rows.Scan); full || err != nil {
			return seen, full, err
		}
		seen++
	}
	return seen, false, rows.Err()
}

// readPage adds rows to a page until it is full or rows end. It returns how many rows it read, and
// the id of the last.
func (s *Store) readPage(rows *database.Rows, page *ExecutionPage, first int) (seen int, last runtime.ExecutionID, err error) {
	defer rows.Close()
	for rows.Next() {
		var value []byte
		var x runtime.Execution
		if err := rows.Scan(&last, &value); err != nil {
			return 0, "", database.Wrap(err, "list executions")
		}
		seen++
		page.bytes += len(value)
		if page.More = len(page.Executions) == first || page.bytes > s.pageBytes && len(page.Executions) > 0; page.More {
			return seen, last, nil
		}
		if err := json.Unmarshal(value, &x); err != nil {
			s.unreadable.note(last, err)
			continue
		}
		page.Executions, page.Sizes = append(page.Executions, x), append(page.Sizes, len(value))
	}
	return seen, last, database.Wrap(rows.Err(), "list executions")
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
