// Package access says who a caller is and what it may do. A [Principal] comes
// from a token or a grant; on a server that needs no token also from nothing. The
// context of everything that is done for a caller has it.
//
// Two checks decide. [Principal.Allow] checks whether the caller may use an
// operation at all, by the [Rule] of that operation. Its methods SeesRunner,
// SeesExecution and so on check whether it sees an object. An object that it
// doesn't see doesn't exist for it, so an id gives no right. A context without a
// principal may do nothing.
package access

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Role says what a token is for. Each role may do all that the roles below it
// may.
type Role string

// The roles, the lowest first.
const (
	Observer Role = "OBSERVER" // reads
	Client   Role = "CLIENT"   // claims runners and uses them
	Operator Role = "OPERATOR" // changes environments and pools
	Admin    Role = "ADMIN"    // manages tokens; with all tenants also tenants and the server
)

var roles = []Role{Observer, Client, Operator, Admin}

// Roles returns all, the lowest first.
func Roles() []Role { return slices.Clone(roles) }

// ParseRole returns INVALID_INPUT for field unless the text is a role's name.
func ParseRole(field, text string) (Role, error) {
	if role := Role(text); slices.Contains(roles, role) {
		return role, nil
	}
	return "", runtime.Invalid(field, "must be OBSERVER, CLIENT, OPERATOR or ADMIN")
}

// Has reports whether r may do what the role least may. It is false if either isn't one
// of [Roles].
func (r Role) Has(least Role) bool {
	needs := slices.Index(roles, least)
	return needs >= 0 && slices.Index(roles, r) >= needs
}

// A Right is what a grant allows on its object.
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

// OfRunner reports whether only a grant to a runner can have the right.
func (r Right) OfRunner() bool { return r == FilesRead || r == FilesWrite || r == Execute }

// A Grant is a right to one object: an execution, or a runner and all
// executions in it.
type Grant struct {
	ID        string
	Execution runtime.ExecutionID // "": it is for a runner
	Runner    runtime.RunnerID    // "": it is for an execution
	Rights    []Right
	Expires   time.Time
}

// A Kind says how a principal identified itself.
type Kind string

// The kinds.
const (
	KindToken     Kind = "TOKEN"
	KindSession   Kind = "SESSION" // a token that a sign-in made
	KindGrant     Kind = "GRANT"
	KindAnonymous Kind = "ANONYMOUS" // the server needs no token
	KindServer    Kind = "SERVER"    // the server itself
)

// A Principal is a caller. The zero Principal may do nothing.
type Principal struct {
	Kind       Kind
	ID         string // of the token; of a grant: of the token that made it
	Name       string // the token's, for people
	Tenant     runtime.TenantID
	AllTenants bool // it acts for every tenant; what it makes without naming a tenant belongs to Tenant
	Role       Role // "" for a grant
	Grant      *Grant
	Address    netip.Addr // where the caller is; zero: nobody knows
	Door       string     // the other system's API that it uses, as package doors names it; "": ours
}

// Server is the server itself, which may do everything.
func Server() Principal {
	return Principal{Kind: KindServer, Name: "server", Role: Admin, AllTenants: true}
}

// Anonymous is the caller of a server that needs no token.
func Anonymous() Principal {
	return Principal{Kind: KindAnonymous, Name: "anonymous", Role: Admin, AllTenants: true}
}

type key struct{}

// With returns a context in which p acts.
func With(ctx context.Context, p Principal) context.Context { return context.WithValue(ctx, key{}, p) }

// Of returns who acts in a context; the zero Principal if nobody does.
func Of(ctx context.Context) Principal {
	p, _ := ctx.Value(key{}).(Principal)
	return p
}

// A Rule says who may use an operation.
type Rule struct {
	Role       Role    // the lowest that may
	AllTenants bool    // and only callers that act for every tenant
	Rights     []Right // a grant with any of these suffices
}

// Allow returns UNAUTHENTICATED for the zero Principal, and FORBIDDEN for a caller that
// may not use an operation. Nobody may use an operation without a rule.
func (p Principal) Allow(name Operation) error {
	rule, ok := rules[name]
	switch {
	case !ok:
		return runtime.Errorf(runtime.CodeForbidden, "%s has no rule that says who may use it", name)
	case p.Kind == "":
		return runtime.Errorf(runtime.CodeUnauthenticated, "%s needs a token", name)
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

// SeesTenant reports whether the caller sees what belongs to a tenant as a whole. A
// grant sees only its object.
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

// SeesLabels reports whether the caller sees the labels of what exists for it. They often name
// people, and a grant may be anybody's.
func (p Principal) SeesLabels() bool { return p.Grant == nil }

// SeesBatch reports whether a batch exists for the caller. A grant for its
// runner suffices; a batch with fresh runners has none.
func (p Principal) SeesBatch(b runtime.Batch) bool {
	if p.Grant != nil {
		return p.Grant.Runner == b.RunnerID && b.RunnerID != "" && (p.AllTenants || p.Tenant == b.Tenant)
	}
	return p.SeesTenant(b.Tenant)
}

// ActsFor returns the tenant of an object that the caller makes from an object of
// owner's: owner for a caller for all tenants, else the caller's tenant.
func (p Principal) ActsFor(owner runtime.TenantID) runtime.TenantID {
	if p.AllTenants {
		return owner
	}
	return p.Tenant
}

// Keys returns the scope of the caller's idempotency keys, which doesn't change with the objects
// that it uses: the name of its tenant, and "" for all callers for all tenants. The holders of
// grants to a runner have a scope of their own, so that they can't use up the keys of the token that made it.
func (p Principal) Keys() string {
	if p.Grant != nil {
		return "grant:" + string(p.Grant.Runner) // no tenant has such a name; a renewed grant finds its keys again
	}
	if p.AllTenants {
		return ""
	}
	return p.Tenant.String()
}

// Scope returns the one tenant whose objects a caller's lists show, and false if they
// show the objects of all tenants.
func (p Principal) Scope() (runtime.TenantID, bool) { return p.Tenant, !p.AllTenants }
