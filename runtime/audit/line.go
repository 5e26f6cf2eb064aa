package audit

import (
	"encoding/json"
	"net/netip"
	"time"

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
