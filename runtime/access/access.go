// Package access says who a caller is and what it may do. A [Principal] comes from a token or a grant; a
// server without tokens gives every caller [Anonymous]. The context of everything done for a caller
// contains its principal.
//
// Two checks decide. [Principal.Allow] checks by the operation's [Rule] whether the caller may use the
// operation at all. SeesRunner, SeesExecution and so on check whether the caller sees an object. An
// object that a caller doesn't see doesn't exist for it, so knowing an id gives no right. A context
// without a principal may do nothing.
package access

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Role is what a token may do. Each role includes the lower ones.
type Role string

// The roles, lowest first.
const (
	Observer Role = "OBSERVER" // reads
	Client   Role = "CLIENT"   // claims runners and uses them
	Operator Role = "OPERATOR" // changes environments and pools
	Admin    Role = "ADMIN"    // manages tokens; with all tenants also tenants and the server
)

// roles are in ascending order: each may do all that the previous one may.
var roles = []Role{Observer, Client, Operator, Admin}

// Roles returns all roles, lowest first.
func Roles() []Role { return slices.Clone(roles) }

// ParseRole returns the role with this name, or INVALID_INPUT for field.
func ParseRole(field, text string) (Role, error) {
	if role := Role(text); slices.Contains(roles, role) {
		return role, nil
	}
	return "", runtime.Invalid(field, "must be OBSERVER, CLIENT, OPERATOR or ADMIN")
}

// Has reports whether r includes the role least. It is false if either isn't one of [Roles].
func (r Role) Has(least Role) bool {
	needs := slices.Index(roles, least)
	return needs >= 0 && slices.Index(roles, r) >= needs
}

// A Right is an action that a grant allows on its object.
type Right string

// The rights.
const (
	Watch      Right = "WATCH"       // read an execution, its events and its output
	Stdin      Right = "STDIN"       // write its standard input, resize its terminal
	Cancel     Right = "CANCEL"      // cancel it, send it signals
	FilesRead  Right = "FILES_READ"  // list and read a runner's files
	FilesWrite Right = "FILES_WRITE" // write and delete them
	Execute    Right = "EXECUTE"     // start executions in a runner
)

// OfRunner reports whether the right needs a grant for a runner.
func (r Right) OfRunner() bool { return r == FilesRead || r == FilesWrite || r == Execute }

// A Grant gives rights to one object: an execution, or a runner and all its executions.
type Grant struct {
	ID        string
	Execution runtime.ExecutionID // "" means the grant is for a runner
	Runner    runtime.RunnerID    // "" means the grant is for an execution
	Rights    []Right
	Expires   time.Time
}

// A Kind is how a principal identified itself.
type Kind string

// The kinds.
const (
	KindToken     Kind = "TOKEN"
	KindSession   Kind = "SESSION" // a token made by a sign-in
	KindGrant     Kind = "GRANT"
	KindAnonymous Kind = "ANONYMOUS" // the server needs no token
	KindServer    Kind = "SERVER"    // the server itself
)

// A Principal is a caller. The zero Principal may do nothing.
type Principal struct {
	Kind       Kind
	ID         string // of the token; for a grant, of the token that made it
	Name       string // of the token, for people
	Tenant     runtime.TenantID
	AllTenants bool // acts for every tenant; new objects without a named tenant belong to Tenant
	Role       Role // "" for a grant
	Grant      *Grant
	Address    netip.Addr // of the caller; the zero address means unknown
	API        string     // the compatible API that it uses, as named by package compat; empty for Rockpool's own
}

// Server returns the principal of the server itself, which may do everything.
func Server() Principal {
	return Principal{Kind: KindServer, Name: "server", Role: Admin, AllTenants: true}
}

// Anonymous returns the principal of all callers on a server without tokens. It may do everything.
func Anonymous() Principal {
	return Principal{Kind: KindAnonymous, Name: "anonymous", Role: Admin, AllTenants: true}
}

type key struct{}

// With returns a context with the principal p.
func With(ctx context.Context, p Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// Alone returns a context that has only the principal of ctx, and never ends. Work that outlasts
// its request uses it, because the request's context keeps the whole request in memory.
func Alone(ctx context.Context) context.Context {
	return With(context.Background(), FromContext(ctx))
}

// FromContext returns the principal of a context, or the zero Principal, which may do nothing.
func FromContext(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}

// A Rule says which callers may use an operation.
type Rule struct {
	Role       Role    // the lowest role that may use it
	AllTenants bool    // also requires a caller for all tenants
	Rights     []Right // a grant with any of these rights suffices
}

// Allow returns nil if the caller may use an operation. It returns UNAUTHENTICATED for the zero Principal
// and FORBIDDEN otherwise. An operation without a rule is forbidden to everybody.
func (p Principal) Allow(name Operation) error {
	rule, ok := rules[name]
	switch {
	case !ok:
		return runtime.Errorf(runtime.CodeForbidden, "operation %s has no access rule, so nobody may use it", name)
	case p.Kind == "":
		return runtime.Errorf(runtime.CodeUnauthenticated, "%s needs a token: send it in the Authorization header", name)
	case p.Grant != nil:
		if slices.ContainsFunc(rule.Rights, func(r Right) bool { return slices.Contains(p.Grant.Rights, r) }) {
			return nil
		}
		if len(rule.Rights) == 0 {
			return runtime.Errorf(runtime.CodeForbidden, "%s can't be used with a grant", name)
		}
		return runtime.Errorf(runtime.CodeForbidden, "%s needs a grant with the right %s; this one has %s", name, join(rule.Rights), join(p.Grant.Rights))
	case !p.Role.Has(rule.Role):
		return runtime.Errorf(runtime.CodeForbidden, "%s needs the role %s; this token has %s", name, rule.Role, p.Role)
	case rule.AllTenants && !p.AllTenants:
		return runtime.Errorf(runtime.CodeForbidden, "%s needs a token for all tenants; this one is for tenant %s", name, p.Tenant)
	}
	return nil
}

func join(rights []Right) string {
	names := make([]string, len(rights))
	for i, r := range rights {
		names[i] = string(r)
	}
	return strings.Join(names, " or ")
}

// SeesTenant reports whether the caller sees the objects of a tenant in general. A grant sees only its
// own object.
func (p Principal) SeesTenant(id runtime.TenantID) bool {
	return p.Kind != "" && p.Grant == nil && (p.AllTenants || p.Tenant == id)
}

// SeesEnvironment reports whether an environment exists for the caller.
func (p Principal) SeesEnvironment(env runtime.Environment) bool {
	return p.SeesTenant(env.Tenant) || env.Shared && p.Kind != "" && p.Grant == nil
}

// SeesRunner reports whether a runner exists for the caller.
func (p Principal) SeesRunner(r runtime.Runner) bool {
	if p.Grant != nil {
		return p.Grant.Runner == r.ID && r.ID != "" && (p.AllTenants || p.Tenant == r.Tenant())
	}
	return p.SeesTenant(r.Tenant())
}

// SeesExecution reports whether an execution exists for the caller.
func (p Principal) SeesExecution(x runtime.Execution) bool {
	if p.Grant != nil {
		mine := p.Grant.Execution == x.ID && x.ID != "" || p.Grant.Runner == x.RunnerID && x.RunnerID != ""
		return mine && (p.AllTenants || p.Tenant == x.Tenant)
	}
	return p.SeesTenant(x.Tenant)
}

// SeesLabels reports whether the caller sees the labels of objects. Labels often name people, so grants,
// which may be passed on to anybody, don't see them.
func (p Principal) SeesLabels() bool { return p.Grant == nil }

// SeesBatch reports whether a batch exists for the caller. A grant for its runner suffices; a batch with
// fresh runners has no single runner.
func (p Principal) SeesBatch(b runtime.Batch) bool {
	if p.Grant != nil {
		return p.Grant.Runner == b.RunnerID && b.RunnerID != "" && (p.AllTenants || p.Tenant == b.Tenant)
	}
	return p.SeesTenant(b.Tenant)
}

// ActsFor returns the tenant of an object that the caller makes from an object of owner's: owner
// for a caller for all tenants, otherwise the caller's tenant.
func (p Principal) ActsFor(owner runtime.TenantID) runtime.TenantID {
	if p.AllTenants {
		return owner
	}
	return p.Tenant
}

// Keys returns the scope of the caller's idempotency keys, which doesn't depend on the objects it
// uses: the name of its tenant, or "" for all callers for all tenants. The grants for a runner have
// a scope of their own, so that they can't use up keys of the token that made them.
func (p Principal) Keys() string {
	if p.Grant != nil {
		return "grant:" + string(p.Grant.Runner) // no tenant has such a name; a renewed grant has the same scope
	}
	if p.AllTenants {
		return ""
	}
	return p.Tenant.String()
}

// Only returns the tenant whose objects the caller's lists contain, or nil if they contain those of
// all tenants.
func (p Principal) Only() *runtime.TenantID {
	if p.AllTenants {
		return nil
	}
	return &p.Tenant
}

// Narrowed returns the tenant to which a list is restricted, or nil for all. filter is the tenant that
// the request selects, or nil. If the caller doesn't see that tenant, sees is false and the list is empty.
func (p Principal) Narrowed(filter *runtime.TenantID) (tenant *runtime.TenantID, sees bool) {
	if filter == nil {
		return p.Only(), true
	}
	return filter, p.SeesTenant(*filter)
}

// A Token is the record of a secret that callers present. The secret itself isn't stored; Hash is its
// SHA-256.
type Token struct {
	ID         string           `json:"id"`
	Kind       Kind             `json:"kind"` // KindToken or KindSession
	Name       string           `json:"name"`
	Subject    string           `json:"subject,omitempty"` // of a session: the person's identifier at the provider
	Tenant     runtime.TenantID `json:"tenant,omitempty"`
	AllTenants bool             `json:"allTenants,omitempty"`
	Role       Role             `json:"role"`
	CreatedAt  time.Time        `json:"createdAt"`
	CreatedBy  string           `json:"createdBy,omitempty"` // the id of the token that made it
	ExpiresAt  time.Time        `json:"expiresAt,omitzero"`  // the zero time means never
	RevokedAt  time.Time        `json:"revokedAt,omitzero"`  // the zero time means not revoked
	LastUsedAt time.Time        `json:"-"`                   // approximate; the zero time means never
	Hash       []byte           `json:"hash"`
}

// Principal returns the principal of callers with the token.
func (t Token) Principal() Principal {
	return Principal{Kind: t.Kind, ID: t.ID, Name: t.Name, Tenant: t.Tenant, AllTenants: t.AllTenants, Role: t.Role}
}

// Ended reports whether the token has been revoked or has expired at a time.
func (t Token) Ended(now time.Time) bool {
	return !t.RevokedAt.IsZero() || !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
