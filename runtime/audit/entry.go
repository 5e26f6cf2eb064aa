package audit

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// WholeServer is the tenant of entries that concern no tenant's object. Only callers for all
// tenants see them.
const WholeServer runtime.TenantID = "*"

// An Entry says who did what to which object, from where, with which outcome. It has no field for
// content: no command, file, input, output, token or secret. Append replaces a value that doesn't
// have the form of its field (see clean.go), so a bug that puts a value into the wrong field
// discloses nothing.
type Entry struct {
	ID         string           // a UUID of version 7; Append sets it
	At         time.Time        // Append sets it
	Tenant     runtime.TenantID // of the object, or WholeServer
	Actor      Actor
	Role       string     // a word, for example "ADMIN"; "": none
	Action     string     // a word: the API's operation, or another one such as "signIn"
	ObjectKind string     // a word, for example "RUNNER"; "": the action has no object
	ObjectID   string     // an id
	Address    netip.Addr // of the caller; zero: it has none
	Outcome    Outcome    // "" becomes OK
	Detail     []Detail   // at most 16, ordered by name
}

// An Actor is the caller that acted.
type Actor struct {
	Kind ActorKind `json:"kind"`
	ID   string    `json:"id,omitempty"`   // for example of the token's record; it gives no right
	Name string    `json:"name,omitempty"` // for people: at most 100 characters
}

// An ActorKind says how an [Actor] identified itself.
type ActorKind string

// The kinds of actors.
const (
	Token     ActorKind = "TOKEN"
	Grant     ActorKind = "GRANT"
	Session   ActorKind = "SESSION"
	Anonymous ActorKind = "ANONYMOUS" // without a token
	Server    ActorKind = "SERVER"    // the server itself
	Unknown   ActorKind = "UNKNOWN"   // any other kind becomes this
)

// key returns the value that Filter.Actor selects: the id, or the kind if there is no id.
func (a Actor) key() string {
	if a.ID == "" {
		return string(a.Kind)
	}
	return a.ID
}

// An Outcome is one of those below or of [runtime.Codes].
type Outcome string

// The outcomes other than error codes.
const (
	OK         Outcome = "OK"
	Cancelled  Outcome = "CANCELLED"  // the caller disconnected or cancelled the request before the answer
	Unreadable Outcome = "UNREADABLE" // the stored entry is damaged; only its indexed fields are known
)

// OutcomeOf returns the outcome of an operation that ended with err for a caller with ctx.
func OutcomeOf(ctx context.Context, err error) Outcome {
	var typed *runtime.Error
	switch cause := context.Cause(ctx); {
	case err == nil:
		return OK
	case errors.As(err, &typed):
		return Outcome(typed.Code)
	case cause == nil || !errors.Is(err, ctx.Err()) && !errors.Is(err, cause):
		return Outcome(runtime.CodeInternal)
	case errors.As(cause, &typed): // the server is stopping, or the caller's token was revoked
		return Outcome(typed.Code)
	}
	return Cancelled
}

// A Detail is an additional fact about an action. It can't contain free text. One without a value
// is left out.
type Detail struct{ name, value string }

// Time returns a detail with a time, to the second.
func Time(name string, t time.Time) Detail {
	if t.IsZero() {
		return Detail{}
	}
	return Detail{name, t.UTC().Format(time.RFC3339)}
}

// Words returns a detail with words, for example of an enumeration, separated by spaces.
func Words[W ~string](name string, words []W) Detail {
	all := make([]string, 0, mostWords)
	for _, word := range words[:min(len(words), mostWords)] {
		all = append(all, cleanWord(string(word)))
	}
	return Detail{name, strings.Join(all, " ")}
}

// Ref returns a detail with the id of another object.
func Ref[I runtime.RunnerID | runtime.ExecutionID | runtime.TicketID](name string, id I) Detail {
	return Detail{name, cleanID(string(id))}
}

// Name returns the detail's name, a word.
func (d Detail) Name() string { return d.name }

// Value returns the detail's value.
func (d Detail) Value() string { return d.value }

const (
	mostDetails = 16 // of an entry
	mostWords   = 16 // of a detail
)

// clean returns the entry in its stored form, with the values that don't have their field's form
// replaced. It shares no memory with e.
func (e Entry) clean() Entry {
	if !slices.Contains([]ActorKind{Token, Grant, Session, Anonymous, Server}, e.Actor.Kind) {
		e.Actor.Kind = Unknown
	}
	e.Tenant = cleanTenant(e.Tenant)
	e.Actor.ID, e.Actor.Name = cleanID(e.Actor.ID), cleanName(e.Actor.Name)
	e.Role, e.Action, e.ObjectKind, e.ObjectID = cleanWord(e.Role), cleanWord(e.Action), cleanWord(e.ObjectKind), cleanID(e.ObjectID)
	e.Address = e.Address.Unmap().WithZone("")
	if e.Outcome == "" {
		e.Outcome = OK
	}
	if e.Outcome != OK && e.Outcome != Cancelled && !slices.Contains(runtime.Codes(), runtime.Code(e.Outcome)) {
		e.Outcome = Outcome(runtime.CodeInternal)
	}
	var details []Detail
	for _, d := range e.Detail[:min(len(e.Detail), mostDetails)] {
		if d.name != "" && d.value != "" {
			details = append(details, Detail{cleanWord(d.name), d.value})
		}
	}
	e.Detail = details
	sortDetails(e.Detail)
	return e
}
