package engine

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/quota"
	"github.com/rockpool/rockpool/runtime/request"
)

// Callers serves what callers know and change about each other: tokens, grants, tenants, and the audit
// log.
type Callers struct{ e *Engine }

// Allowed returns the caller if it may use an operation, or why not. It checks no object.
func (s *Callers) Allowed(ctx context.Context, op access.Operation) (access.Principal, error) {
	return s.e.auth.Allow(ctx, op)
}

// Tokens returns the tokens that the caller manages; see [identity.Registry.Tokens].
func (s *Callers) Tokens(ctx context.Context, sessions bool) ([]access.Token, error) {
	p, err := s.e.auth.Allow(ctx, "tokens")
	if err != nil {
		return nil, err
	}
	return s.e.callerRegistry.Tokens(p, sessions), nil
}

// CreateToken makes a token with at most the caller's rights; see [identity.Registry.CreateToken].
func (s *Callers) CreateToken(ctx context.Context, in identity.NewToken) (token access.Token, secret string, err error) {
	made := audit.NewMade(audit.OfToken, "")
	err = s.e.auth.Make(ctx, "createToken", made, func(p access.Principal) (err error) {
		in.Kind = access.KindToken
		if token, secret, err = s.e.callerRegistry.CreateToken(ctx, p, in); err == nil {
			made.ID, made.Tenant = token.ID, tokenTenant(token)
		}
		return err
	})
	return token, secret, err
}

// tokenTenant returns the tenant whose audit log contains a token's entries.
func tokenTenant(t access.Token) runtime.TenantID {
	if t.AllTenants {
		return audit.WholeServer
	}
	return t.Tenant
}

// RevokeToken revokes a token; see [identity.Registry.RevokeToken]. A full audit log doesn't prevent it.
// Only a repeated call that revokes nothing has no entry then.
func (s *Callers) RevokeToken(ctx context.Context, id string, alsoMade bool) (done identity.Revocation, err error) {
	entry := audit.NewMade(audit.OfToken, id)
	err = s.e.auth.Make(ctx, "revokeToken", entry, func(p access.Principal) (err error) {
		if done, err = s.e.callerRegistry.RevokeToken(ctx, p, id, alsoMade); done.Token != nil {
			entry.Tenant = tokenTenant(*done.Token)
		}
		entry.Omit = !done.Revoked && done.Made == 0 && !s.e.auth.Room(entry.Tenant)
		return err
	})
	return done, err
}

// CreateGrant makes a grant for an execution or a runner that the caller sees, and returns its
// text. Exactly one of the two must be set.
func (s *Callers) CreateGrant(ctx context.Context, grant access.Grant, life time.Duration) (text string, made access.Grant, err error) {
	slices.Sort(grant.Rights)
	grant.Rights = slices.Compact(grant.Rights)
	entry := audit.NewMade(audit.OfGrant, "")
	entry.Details = []audit.Detail{audit.Ref("execution", grant.Execution), audit.Ref("runner", grant.Runner), audit.Words("rights", grant.Rights)}
	err = s.e.auth.Make(ctx, "createGrant", entry, func(p access.Principal) (err error) {
		if (grant.Execution == "") == (grant.Runner == "") {
			return runtime.Invalid("executionId", "give exactly one of executionId and runnerId")
		}
		if len(grant.Rights) == 0 {
			return runtime.Invalid("rights", "must contain at least one right")
		}
		if err := runtime.Between("expiresIn", int64(life/time.Second), 1, int64(identity.MaxGrantLife/time.Second), "seconds"); err != nil {
			return err
		}
		of := s.e.runner(grant.Runner)
		if grant.Execution != "" {
			if i := slices.IndexFunc(grant.Rights, access.Right.OfRunner); i >= 0 {
				return runtime.Invalid("rights", "%s is a right on a runner: give runnerId instead of executionId", grant.Rights[i])
			}
			of = s.e.sessions.Object(ctx, grant.Execution)
		}
		if entry.Tenant, err = of.Find(p); err != nil {
			return err
		}
		text, made, err = s.e.callerRegistry.Sign(p, grant, life)
		entry.ID, entry.Details = made.ID, append(entry.Details, audit.Time("expiresAt", made.Expires))
		return err
	})
	return text, made, err
}

// Tenants returns the tenants that the caller sees.
func (s *Callers) Tenants(ctx context.Context) ([]runtime.Tenant, error) {
	p, err := s.e.auth.Allow(ctx, "tenants")
	if err != nil {
		return nil, err
	}
	return s.e.callerRegistry.Tenants(p), nil
}

// Usage returns what a tenant uses, and its limits. It checks nothing: the tenant must come from a call
// that did.
func (s *Callers) Usage(of runtime.Tenant) quota.Usage { return s.e.usage.Quotas.Usage(of.ID) }

// AcquireSubscription acquires a subscription from the quota of the caller's tenant until done is
// called. Callers for all tenants need none.
func (s *Callers) AcquireSubscription(ctx context.Context) (done func(), err error) {
	p, err := s.e.auth.Allow(ctx, "me")
	if err != nil {
		return nil, err
	}
	if p.AllTenants {
		return func() {}, nil
	}
	account := s.e.usage.Quotas.Of(p.Tenant)
	if err := account.Acquire(quota.Subscriptions, 1); err != nil {
		return nil, err
	}
	return func() { account.Release(quota.Subscriptions, 1) }, nil
}

// tenant returns a tenant as the object of an operation. Its entries are of the whole server.
func tenant(id runtime.TenantID) audit.Object {
	return audit.Object{Kind: audit.OfTenant, ID: id.String(), Find: everywhere}
}

// everywhere is the Find of objects that no tenant has.
func everywhere(access.Principal) (runtime.TenantID, error) { return audit.WholeServer, nil }

// PutTenant creates or changes a tenant; see [identity.Registry.PutTenant].
func (s *Callers) PutTenant(ctx context.Context, id runtime.TenantID, weight *int, quotas *runtime.Quotas) (put runtime.Tenant, created bool, err error) {
	put, err = audit.Do(ctx, s.e.auth, "putTenant", tenant(id), func() (put runtime.Tenant, err error) {
		put, created, err = s.e.callerRegistry.PutTenant(ctx, id, weight, quotas)
		return put, err
	})
	return put, created, err
}

// DeleteTenant deletes a tenant; see [identity.Registry.DeleteTenant]. It returns CONFLICT if the
// tenant still has environments. None can be created meanwhile.
func (s *Callers) DeleteTenant(ctx context.Context, id runtime.TenantID) (deleted bool, err error) {
	return audit.Do(ctx, s.e.auth, "deleteTenant", tenant(id), func() (deleted bool, err error) {
		err = s.e.environmentRegistry.RemoveTenant(ctx, id, func() error {
			if deleted, err = s.e.callerRegistry.DeleteTenant(ctx, id); err == nil {
				s.e.alerts.Forget(id)
			}
			return err
		})
		return deleted, err
	})
}

// AuditLog returns the entries of the caller's tenant, without those of a deleted tenant with the
// same name. The time of the new tenant's creation divides them, in milliseconds. A caller for all
// tenants gets the entries of all, or of the filter's tenant. See [audit.Log.Entries].
func (s *Callers) AuditLog(ctx context.Context, filter audit.Filter, first int, after string) (audit.Page, error) {
	p, err := s.e.auth.Allow(ctx, "auditLog")
	if err != nil {
		return audit.Page{}, err
	}
	var sees bool
	if filter.Tenant, sees = p.Narrowed(filter.Tenant); !sees {
		return audit.Page{}, nil
	}
	if t, _ := s.e.callerRegistry.Tenant(p.Tenant); !p.AllTenants && t.ID != runtime.DefaultTenant && filter.From.Before(t.CreatedAt) {
		filter.From = t.CreatedAt
	}
	return s.e.log.Entries(ctx, filter, first, after)
}

// FreeTenant frees the name of a deleted tenant for a new one. It returns CONFLICT while runners, waiting
// claims or executions of the deleted tenant exist, because the new one would see them. The error
// says which and, if known, when they end. Otherwise FreeTenant removes the spent keys, ended
// tickets, alerts and failures of the deleted tenant.
func (e *Engine) FreeTenant(ctx context.Context, id runtime.TenantID) error {
	conflict := func(format string, args ...any) error {
		return runtime.Errorf(runtime.CodeConflict, "a deleted tenant "+id.String()+" "+format, args...)
	}
	for _, r := range e.runnerIndex.list(request.Runners{}) {
		if r.Tenant() == id {
			return conflict("still holds the runner %s: release it, or choose another name", r.ID)
		}
	}
	if _, waiting := e.usage.WaitingClaims(ctx, request.Waiting{Tenant: &id}, 0, ""); waiting > 0 {
		return conflict("has %d waiting claims: try again when they have ended, or choose another name", waiting)
	}
	kept, err := e.store.OfTenant(ctx, id)
	switch {
	case err != nil:
		return err
	case kept.Unfinished > 0:
		return conflict("has %d unfinished executions or batches: cancel them, or choose another name", kept.Unfinished)
	case kept.Executions == 0:
		e.ticketRegistry.Forget(id)
		e.alerts.Forget(id)
		e.failures.Forget(id)
		return e.store.ForgetSpentKeys(ctx, request.KeyPrefix(id.String()))
	case e.keep == 0:
		return conflict("left %d executions, which this server keeps forever (--keep-executions 0): choose another name", kept.Executions)
	default:
		return conflict("left %d executions, which are kept until about %s: choose another name, or try again then",
			kept.Executions, kept.LastEnd.Add(e.keep).UTC().Format(time.RFC3339))
	}
}
