package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// An AuditRow is an entry of the audit log, as package audit encodes it.
type AuditRow struct {
	ID     string // a UUID of version 7, in lower case
	At     time.Time
	Tenant runtime.TenantID
	Actor  string
	Action string
	Object string
	Failed bool // its outcome isn't OK
	Value  []byte
}

const auditColumns = 8

// MostAuditRows bounds the rows of one AppendAudit.
const MostAuditRows = mostParameters / auditColumns

// insertAudit is followed by the parameters of the rows.
const insertAudit = "INSERT INTO audit (id, tenant, actor, action, object, at, failed, value) VALUES "

// AppendAudit stores at most MostAuditRows rows: all or none. Rows that are stored already stay
// unchanged. If ctx ends first, it returns ctx's cause; the rows may be stored or not, so append
// them again.
func (s *Store) AppendAudit(ctx context.Context, rows []AuditRow) error {
	if len(rows) == 0 {
		return nil
	}
	values := make([]string, len(rows))
	args := make([]any, 0, auditColumns*len(rows))
	for i, r := range rows {
		values[i] = "(" + parameters(len(args)+1, auditColumns) + ")"
		args = append(args, r.ID, r.Tenant, r.Actor, r.Action, r.Object, r.At.UnixMilli(), bit(r.Failed), r.Value)
	}
	statement := insertAudit + strings.Join(values, ", ") + " ON CONFLICT (id) DO NOTHING"
	return s.db.Rewrite(ctx, "store the audit log", func(tx *database.Tx) error {
		execute := tx.ExecOnce
		if len(rows) == 1 {
			execute = tx.Exec
		}
		_, err := execute(statement, args...)
		return err
	})
}

// An AuditFilter selects rows; a zero field selects all.
type AuditFilter struct {
	Tenant      *runtime.TenantID // nil for all
	Actor       string
	Action      string
	Object      string
	Failed      *bool     // nil for any outcome
	From, To    time.Time // by the time in the id, in milliseconds; To is exclusive
	NewestFirst bool
}

// Audit returns at most first rows after an id, oldest first or, with NewestFirst, newest first.
// more says that others follow. A page ends before it exceeds PageBytes, but it has one row if there
// is any. Only listsAtOnce lists run concurrently; others wait.
func (s *Store) Audit(ctx context.Context, q AuditFilter, first int, after string) (page []AuditRow, more bool, err error) {
	leave, err := enter(ctx, s.listing, q.Tenant)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	selected := selection{id: "id"}
	selected.ofTenant("tenant", q.Tenant)
	selected.equal("actor", q.Actor)
	selected.equal("action", q.Action)
	selected.equal("object <> '' AND object", q.Object) // so that the index is used
	if q.Failed != nil {
		selected.add(fmt.Sprintf("failed = %d", bit(*q.Failed))) // a literal, so that the index is used
	}
	if !q.From.IsZero() {
		selected.add("id >= %s", firstID(q.From))
	}
	if !q.To.IsZero() {
		selected.add("id < %s", firstID(q.To))
	}
	bytes := 0
	err = s.inRounds(ctx, "read the audit log", first+1, func(limit int) (string, []any) {
		round := selected
		where := round.page(q.NewestFirst, limit, after)
		return "SELECT id, tenant, actor, action, object, at, failed = 1, value FROM audit WHERE " + where, round.args
	}, func(scan func(...any) error) error {
		var r AuditRow
		var at int64
		if err := scan(&r.ID, &r.Tenant, &r.Actor, &r.Action, &r.Object, &at, &r.Failed, &r.Value); err != nil {
			return err
		}
		if bytes += len(r.Value); len(page) == first || bytes > s.pageBytes && len(page) > 0 {
			more = true
			return database.ErrStop
		}
		r.At = time.UnixMilli(at)
		page, after = append(page, r), r.ID
		return nil
	})
	if database.HasNUL(err) { // no column contains NUL
		return nil, false, nil
	}
	return page, more, err
}

// DeleteAudit deletes at most most of the oldest rows whose id was made before a time, and returns their
// number. Call it again until that is less than most; other writes run in between. If ctx ends first, it
// returns ctx's cause.
func (s *Store) DeleteAudit(ctx context.Context, before time.Time, most int) (deleted int, err error) {
	var found int
	err = s.db.Rewrite(ctx, "shorten the audit log", func(tx *database.Tx) error {
		result, err := tx.Exec("DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < $1 ORDER BY id LIMIT $2)", firstID(before), most)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		found = int(n)
		return err
	})
	if err != nil {
		return 0, err
	}
	return found, nil
}

// firstID returns a string that sorts before every UUID of version 7 made at t or later. Such an id
// begins with 48 bits of milliseconds.
func firstID(t time.Time) string {
	millis := uint64(max(0, min(t.UnixMilli(), 1<<48-1)))
	var bytes [6]byte
	for i := range slices.Backward(bytes[:]) {
		bytes[i] = byte(millis)
		millis >>= 8
	}
	text := hex.EncodeToString(bytes[:])
	return text[:8] + "-" + text[8:]
}

func bit(set bool) int {
	if set {
		return 1
	}
	return 0
}
