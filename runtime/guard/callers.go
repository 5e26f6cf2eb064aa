package guard

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/quota"
)

// Tokens returns the tokens that the caller manages; see [identity.Registry.Tokens].
func (g *Guard) Tokens(ctx context.Context, sessions bool) ([]access.Token, error) {
	p, err := g.caller(ctx, "tokens")
	if err != nil {
		return nil, err
	}
	return g.book.Tokens(p, sessions), nil
}

// CreateToken makes a token with at most the caller's rights; see [identity.Registry.CreateToken].
func (g *Guard) CreateToken(ctx context.Context, in identity.NewToken) (made access.Token, secret string, err error) {
	defer func() { record(ctx, g, "createToken", ofToken, made.ID, owner(tokenTenant(made), err), err) }()
	p, err := g.caller(ctx, "createToken")
	if err != nil {
		return access.Token{}, "", err
	}
	in.Kind = access.KindToken
	return g.book.CreateToken(ctx, p, in)
}

// RevokeToken revokes a token; see [identity.Registry.RevokeToken]. A full audit log doesn't prevent
// it. Only a repeated call that revokes nothing has no entry then.
func (g *Guard) RevokeToken(ctx context.Context, id string, alsoMade bool) (done identity.Revocation, err error) {
	tenant := audit.WholeServer
	defer func() {
		if ended := done.Revoked || done.Made > 0; err != nil || ended || g.log == nil || g.log.Room(tenant) == nil {
			record(ctx, g, "revokeToken", ofToken, id, tenant, err)
		}
	}()
	p, err := g.caller(ctx, "revokeToken")
	if err != nil {
		return done, err
	}
	if done, err = g.book.RevokeToken(ctx, p, id, alsoMade); done.Token != nil {
		tenant = tokenTenant(*done.Token)
	}
	return done, err
}

// CreateGrant makes a grant for an execution or a runner that the caller sees, and returns its
// text. Exactly one of the two must be set.
func (g *Guard) CreateGrant(ctx context.Context, grant access.Grant, life time.Duration) (text string, made access.Grant, err error) {
	tenant := audit.WholeServer
	defer func() {
		record(ctx, g, "createGrant", ofGrant, made.ID, tenant, err,
			audit.Ref("execution", grant.Execution), audit.Ref("runner", grant.Runner), audit.Words("rights", grant.Rights), audit.Time("expiresAt", made.Expires))
	}()
	p, err := g.caller(ctx, "createGrant")
	if err != nil {
		return "", grant, err
	}
	if (grant.Execution == "") == (grant.Runner == "") {
		return "", grant, runtime.Invalid("executionId", "give exactly one of executionId and runnerId")
	}
	if len(grant.Rights) == 0 {
		return "", grant, runtime.Invalid("rights", "must contain at least one right")
	}
	if err := runtime.Between("expiresIn", int64(life/time.Second), 1, int64(identity.MaxGrantLife/time.Second), "seconds"); err != nil {
		return "", grant, err
	}
	slices.Sort(grant.Rights)
	grant.Rights = slices.Compact(grant.Rights)
	if grant.Execution != "" {
		if i := slices.IndexFunc(grant.Rights, access.Right.OfRunner); i >= 0 {
			return "", grant, runtime.Invalid("rights", "%s is a right on a runner: give runnerId instead of executionId", grant.Rights[i])
		}
		var x runtime.Execution
		x, err = g.execution(ctx, p, grant.Execution)
		tenant = x.Tenant
	} else {
		var r runtime.Runner
		r, err = g.runner(p, grant.Runner)
		tenant = r.Tenant()
	}
	if err != nil {
		return "", grant, err
	}
	return g.book.Sign(p, grant, life)
}

// Tenants returns the tenants that the caller sees.
func (g *Guard) Tenants(ctx context.Context) ([]runtime.Tenant, error) {
	p, err := g.caller(ctx, "tenants")
	if err != nil {
		return nil, err
	}
	return g.book.Tenants(p), nil
}

// Usage returns what a tenant uses. It checks nothing: id must come from a call that did.
func (g *Guard) Usage(id runtime.TenantID) quota.Usage { return g.engine.Usage(id) }

// AcquireSubscription acquires a subscription from the quota of the caller's tenant until done is called.
// Callers for all tenants need none.
func (g *Guard) AcquireSubscription(ctx context.Context) (done func(), err error) {
	p, err := g.caller(ctx, "me")
	if err != nil {
		return nil, err
	}
	if p.AllTenants {
		return func() {}, nil
	}
	return g.engine.AcquireSubscription(p.Tenant)
}

// PutTenant creates or changes a tenant; see [identity.Registry.PutTenant].
func (g *Guard) PutTenant(ctx context.Context, id runtime.TenantID, weight *int, quotas *runtime.Quotas) (_ runtime.Tenant, created bool, err error) {
	defer g.recording(ctx, "putTenant", ofTenant, id.String())(&err)
	if _, err := g.caller(ctx, "putTenant"); err != nil {
		return runtime.Tenant{}, false, err
	}
	return g.book.PutTenant(ctx, id, weight, quotas)
}

// DeleteTenant deletes a tenant; see [identity.Registry.DeleteTenant]. It returns CONFLICT if the
// tenant still has environments.
func (g *Guard) DeleteTenant(ctx context.Context, id runtime.TenantID) (deleted bool, err error) {
	defer g.recording(ctx, "deleteTenant", ofTenant, id.String())(&err)
	if _, err := g.caller(ctx, "deleteTenant"); err != nil {
		return false, err
	}
	return g.engine.DeleteTenant(ctx, id, g.book.DeleteTenant)
}
