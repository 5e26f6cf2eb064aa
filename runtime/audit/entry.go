package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store"
)

// WholeServer is the tenant of entries that concern no tenant's object. Only callers for all
// tenants see them.
const WholeServer runtime.TenantID = "*"

// An Entry says who did what to which object, from where, with which outcome. It has no field for
// content: no command, file, input, output, token or secret. Append replaces a value that doesn't
// have the form of its field, so a bug that puts a value into the wrong field
// discloses nothing.
type Entry struct {
	ID         string           // a UUID of version 7; Append sets it
	At         time.Time        // Append sets it
	Tenant     runtime.TenantID // of the object, or WholeServer
	Actor      Actor
	Role       string     // a word, for example "ADMIN"; "" means none
	Action     string     // a word: the API's operation, or another one such as "signIn"
	ObjectKind string     // a word, for example "RUNNER"; "" means the action has no object
	ObjectID   string     // an id
	Address    netip.Addr // of the caller; the zero address means it has none
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

const (
	malformed = "(malformed)" // replaces a value that doesn't have its field's form
	hidden    = "(hidden)"    // replaces a word of a name that looks like a secret

	mostName = 100 // characters of a name
)

var (
	// Names of codes, states and settings.
	words = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,39}$`)
	// IDs, addresses and versions.
	ids = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

	digests = regexp.MustCompile(`^#[0-9a-f]{12}$`) // of cleanID

	// Tokens and keys in hex, base64 and base64url contain such runs.
	runs     = regexp.MustCompile(`[A-Za-z0-9]{16,}`)
	longRuns = regexp.MustCompile(`[A-Za-z0-9_+/=-]{32,}`)
)

// cleanWord returns s if it has the form of a word, such as the name of an operation or a role, or
// malformed.
func cleanWord(s string) string {
	if s == "" || words.MatchString(s) && !secret(s) {
		return s
	}
	return malformed
}

// cleanID returns s if it has the form of an id, or malformed. For an id that looks like a secret
// it returns the beginning of its digest, which is always the same.
func cleanID(s string) string {
	switch {
	case s == "" || digests.MatchString(s):
		return s
	case !ids.MatchString(s):
		return malformed
	case secret(s):
		sum := sha256.Sum256([]byte(s))
		return "#" + hex.EncodeToString(sum[:6])
	default:
		return s
	}
}

// cleanTenant returns a tenant whose name is valid, or malformed. It keeps names that look like secrets,
// because the tenant decides which entries a caller sees.
func cleanTenant(id runtime.TenantID) runtime.TenantID {
	if id == runtime.DefaultTenant || id == WholeServer {
		return id
	}
	if _, err := runtime.ParseTenant("", string(id)); err != nil {
		return malformed
	}
	return id
}

// cleanName returns a name for people. It replaces unprintable characters and words that look like
// secrets, and cuts the name to mostName characters.
func cleanName(s string) string {
	s = s[:min(len(s), 64*mostName)]
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
	all := strings.Split(s, " ")
	for i, word := range all {
		if secret(word) {
			all[i] = hidden
		}
	}
	s = strings.Join(all, " ")
	if runes := []rune(s); len(runes) > mostName {
		s = string(runes[:mostName-1]) + "…"
	}
	return s
}

// secret reports whether a text looks like a token, a key or a digest. That means 16 letters and
// digits in a row, or 32 characters of base64 with letters of both cases and digits. A UUID has
// neither.
func secret(s string) bool {
	for _, run := range runs.FindAllString(s, -1) {
		if strings.ContainsFunc(run, unicode.IsDigit) && strings.ContainsFunc(run, unicode.IsLetter) {
			return true
		}
	}
	for _, run := range longRuns.FindAllString(s, -1) {
		if strings.ContainsFunc(run, unicode.IsDigit) && strings.ContainsFunc(run, unicode.IsUpper) && strings.ContainsFunc(run, unicode.IsLower) {
			return true
		}
	}
	return false
}

// sortDetails sorts by name. Details with the same name keep their order.
func sortDetails(all []Detail) {
	slices.SortStableFunc(all, func(a, b Detail) int { return cmp.Compare(a.name, b.name) })
}

// A clock makes ids that sort in the order in which they were made. If the time is set back by more
// than mostAhead, ids follow the new time, so that filters by time stay correct. [uuid.NewV7]
// doesn't ensure that.
type clock struct {
	last int64 // the tick of the last id
}

// ticks is how finely an id divides a millisecond (RFC 9562, section 6.2, method 3).
const ticks = 1 << 12

// mostAhead bounds how far ids may run ahead of the time.
const mostAhead = 100 // milliseconds

// id returns the ID of an entry made at a time: a UUIDv7 that sorts after the previous one, unless
// the time was set back by more than mostAhead. The caller holds the log's lock.
func (c *clock) id(at time.Time) string {
	tick := at.UnixMilli()*ticks + int64(at.Nanosecond()%1e6)*ticks/1e6
	if tick <= c.last && c.last-tick < mostAhead*ticks {
		tick = c.last + 1
	}
	c.last = tick
	id := uuid.Must(uuid.NewV7()) // supplies the random part and the version
	millis := tick / ticks
	// 48 bits of milliseconds, then 12 bits of ticks (RFC 9562, section 5.7).
	for i := range 6 {
		id[i] = byte(millis >> (40 - 8*i))
	}
	id[6] = id[6]&0xf0 | byte(tick%ticks>>8)
	id[7] = byte(tick)
	return id.String()
}
