package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/runtime/disk"
	"github.com/rockpool/rockpool/runtime/store"
)

// A line is an entry as JSON, in the database and in the copy. Later versions may add fields, but
// don't change the meaning of existing ones. Empty fields are left out.
//
//	{
//	  "id": "0199c1f2-…",                 UUID of version 7; sorts by time
//	  "at": "2026-11-26T10:00:00.123Z",   RFC 3339, UTC
//	  "tenant": "default",
//	  "actor": {"kind": "TOKEN", "id": "0199…", "name": "CI"},
//	  "role": "CLIENT",
//	  "action": "claimRunner",
//	  "object": {"kind": "RUNNER", "id": "0199…"},
//	  "address": "192.0.2.1",
//	  "outcome": "OK",                    CANCELLED, or an error code of the API
//	  "detail": {"ticket": "0199…"}
//	}
//
// The copy may also contain {"lost": 12}: 12 lines are missing at that point, which the database has.
type line struct {
	ID      string            `json:"id"`
	At      time.Time         `json:"at"`
	Tenant  string            `json:"tenant"`
	Actor   Actor             `json:"actor"`
	Role    string            `json:"role,omitempty"`
	Action  string            `json:"action"`
	Object  *lineObject       `json:"object,omitempty"`
	Address string            `json:"address,omitempty"`
	Outcome Outcome           `json:"outcome"`
	Detail  map[string]string `json:"detail,omitempty"`
}

type lineObject struct {
	Kind string `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"`
}

// row returns a clean entry as a row of the store. Its value is a line without the newline.
func (e Entry) row() (store.AuditRow, error) {
	l := line{
		ID: e.ID, At: e.At.UTC(), Tenant: e.Tenant.String(), Actor: e.Actor, Role: e.Role, Action: e.Action, Outcome: e.Outcome,
	}
	if e.ObjectKind != "" || e.ObjectID != "" {
		l.Object = &lineObject{e.ObjectKind, e.ObjectID}
	}
	if e.Address.IsValid() {
		l.Address = e.Address.String()
	}
	for _, d := range e.Detail {
		if l.Detail == nil {
			l.Detail = map[string]string{}
		}
		l.Detail[d.name] = d.value
	}
	value, err := json.Marshal(l)
	return store.AuditRow{ID: e.ID, At: e.At, Tenant: e.Tenant, Actor: e.Actor.key(), Action: e.Action, Object: e.ObjectID, Failed: e.Outcome != OK, Value: value}, err
}

func entryOf(r store.AuditRow) Entry {
	var l line
	if err := json.Unmarshal(r.Value, &l); err != nil {
		return Entry{ID: r.ID, At: r.At, Tenant: r.Tenant, Actor: Actor{Kind: Unknown, ID: r.Actor}, Action: r.Action, ObjectID: r.Object, Outcome: Unreadable}
	}
	e := Entry{ID: r.ID, At: l.At, Tenant: r.Tenant, Actor: l.Actor, Role: l.Role, Action: l.Action, Outcome: l.Outcome}
	if l.Object != nil {
		e.ObjectKind, e.ObjectID = l.Object.Kind, l.Object.ID
	}
	e.Address, _ = netip.ParseAddr(l.Address) // zero without an address
	for name, value := range l.Detail {
		e.Detail = append(e.Detail, Detail{name, value})
	}
	sortDetails(e.Detail)
	return e
}

const (
	mostCopies = 1000        // queued batches of lines
	endWithin  = time.Second // how long end waits for them
)

var errSlow = errors.New("copy the audit log: the file or stream accepts lines too slowly, so lines are missing in the copy; the database has all of them")

// lines copies entries to a file or a stream, one per line. The copy misses entries that can't be
// written, and entries that arrive while mostCopies batches are queued. A line then says how many:
// see line.
type lines struct {
	to      *disk.LineFile // owned by run
	failing func(error)    // called with each change of the copy's fault; nil means it works

	copies chan []byte   // capacity mostCopies; closed by end
	lost   atomic.Int64  // missing entries that no line counts yet
	done   chan struct{} // closed by run
}

// newLines returns an error if the file can't be opened.
func newLines(path string, stdout io.Writer, failing func(error)) (*lines, error) {
	to, err := disk.StreamLines(stdout), error(nil)
	if path != "-" {
		to, err = disk.OpenLines(path, 0o600)
	}
	return &lines{to: to, failing: failing, copies: make(chan []byte, mostCopies), done: make(chan struct{})}, err
}

// add queues rows. It never blocks.
func (l *lines) add(rows []store.AuditRow) {
	var text []byte
	for _, r := range rows {
		text = append(append(text, r.Value...), '\n')
	}
	select {
	case l.copies <- text:
	default:
		l.lost.Add(int64(len(rows)))
		l.failing(errSlow)
	}
}

// end waits until everything is written, but at most endWithin, because a stream that nobody reads
// must not keep the server from stopping. Don't call add afterwards.
func (l *lines) end() {
	close(l.copies)
	select {
	case <-l.done:
	case <-time.After(endWithin):
	}
}

// run writes until end is called. It closes the file.
func (l *lines) run() {
	defer close(l.done)
	for text := range l.copies {
		lost, note := l.lost.Swap(0), ""
		if lost > 0 {
			note = fmt.Sprintf("{\"lost\": %d}\n", lost)
		}
		n, err := l.to.Write(append([]byte(note), text...))
		if err != nil {
			if n < len(note) {
				n = len(note)
				l.lost.Add(lost)
			}
			l.lost.Add(int64(bytes.Count(text[n-len(note):], []byte{'\n'})))
			err = fmt.Errorf("copy the audit log: lines are missing in the copy; the database has all entries: %w", err)
		}
		if err != nil || l.lost.Load() == 0 { // otherwise add has reported that it falls behind
			l.failing(err)
		}
	}
	l.to.Close()
}
