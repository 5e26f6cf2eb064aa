package graph

import (
	"context"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/audit"
	"github.com/rockpool/rockpool/runtime/identity"
)

// rowMemory is the approximate memory in bytes of a token, a tenant or an environment in an answer,
// with all of its fields.
const rowMemory = 4 << 10

func (r query) Me(ctx context.Context) (access.Principal, error) {
	return r.engine.Callers.Allowed(ctx, "me")
}

func (r principal) Tenant(_ context.Context, of *access.Principal) (*string, error) {
	return tenantName(of.Tenant, of.AllTenants), nil
}

// tenantName returns nil, which the API shows as null, for all tenants.
func tenantName(id runtime.TenantID, all bool) *string {
	if all {
		return nil
	}
	return new(id.String())
}

// ofTenant returns the tenant that filters a list, or nil.
func ofTenant(name *string) (*runtime.TenantID, error) {
	if name == nil {
		return nil, nil
	}
	id, err := runtime.ParseTenant("tenant", *name)
	return &id, err
}

func (r query) Tokens(ctx context.Context, sessions *bool) ([]access.Token, error) {
	found, err := r.engine.Callers.Tokens(ctx, orZero(sessions))
	if err == nil {
		err = transport.Charge(ctx, rowMemory*int64(len(found)))
	}
	return found, err
}

func (r token) Tenant(_ context.Context, of *access.Token) (*string, error) {
	return tenantName(of.Tenant, of.AllTenants), nil
}

func (r mutation) CreateToken(ctx context.Context, in generated.CreateTokenInput) (generated.CreateTokenPayload, error) {
	asked, err := newToken(access.FromContext(ctx), in)
	if err != nil {
		return generated.CreateTokenPayload{}, err
	}
	made, secret, err := r.engine.Callers.CreateToken(ctx, asked)
	return generated.CreateTokenPayload{Token: made, Secret: secret}, err
}

// newToken converts the input of a caller. The caller's tenant is the default.
func newToken(by access.Principal, in generated.CreateTokenInput) (identity.NewToken, error) {
	asked := identity.NewToken{Name: in.Name, Role: in.Role, Tenant: by.Tenant, AllTenants: by.AllTenants}
	if in.Tenant != nil {
		tenant, err := runtime.ParseTenant("tenant", *in.Tenant)
		if err != nil {
			return asked, err
		}
		asked.Tenant, asked.AllTenants = tenant, false
	}
	if in.ExpiresIn != nil {
		if err := runtime.Between("expiresIn", int64(*in.ExpiresIn), 1, int64(identity.MaxTokenLife/time.Second), "seconds"); err != nil {
			return asked, err
		}
		asked.Life = time.Duration(*in.ExpiresIn) * time.Second
	}
	return asked, nil
}

func (r mutation) RevokeToken(ctx context.Context, id string, alsoMade *bool) (generated.RevokeTokenPayload, error) {
	done, err := r.engine.Callers.RevokeToken(ctx, id, orZero(alsoMade))
	return generated.RevokeTokenPayload{Token: done.Token, Revoked: done.Revoked, MadeRevoked: done.Made}, err
}

func (r mutation) CreateGrant(ctx context.Context, in generated.CreateGrantInput) (generated.CreateGrantPayload, error) {
	life := identity.DefaultGrantLife
	if in.ExpiresIn != nil {
		life = time.Duration(*in.ExpiresIn) * time.Second
	}
	asked := access.Grant{Execution: runtime.ExecutionID(orZero(in.ExecutionID)), Runner: runtime.RunnerID(orZero(in.RunnerID)), Rights: in.Rights}
	text, made, err := r.engine.Callers.CreateGrant(ctx, asked, life)
	return generated.CreateGrantPayload{Grant: made, Token: text}, err
}

func (r query) Tenants(ctx context.Context) ([]runtime.Tenant, error) {
	found, err := r.engine.Callers.Tenants(ctx)
	if err == nil {
		err = transport.Charge(ctx, rowMemory*int64(len(found)))
	}
	return found, err
}

func (r mutation) PutTenant(ctx context.Context, in generated.PutTenantInput) (generated.PutTenantPayload, error) {
	id, err := runtime.ParseTenant("id", in.ID)
	if err != nil {
		return generated.PutTenantPayload{}, err
	}
	put, created, err := r.engine.Callers.PutTenant(ctx, id, in.Weight, in.Quotas)
	return generated.PutTenantPayload{Tenant: put, Created: created}, err
}

func (r mutation) DeleteTenant(ctx context.Context, name string) (generated.DeleteTenantPayload, error) {
	id, err := runtime.ParseTenant("id", name)
	if err != nil {
		return generated.DeleteTenantPayload{}, err
	}
	deleted, err := r.engine.Callers.DeleteTenant(ctx, id)
	return generated.DeleteTenantPayload{Deleted: deleted}, err
}

func (r tenant) Use(_ context.Context, of *runtime.Tenant) (generated.TenantUse, error) {
	use := r.engine.Callers.Usage(*of)
	return generated.TenantUse{
		Runners: use.Runners.Used, Waiting: use.Waiting.Used, Executions: use.Executions.Used, Subscriptions: use.Subscriptions.Used,
		ClaimsPerMinute: use.ClaimsPerMinute.Used, CPUSecondsPerDay: use.CPUSecondsPerDay.Used, OutputBytesPerDay: use.OutputBytesPerDay.Used,
		PoolRunners: use.PoolRunners.Used, MemoryMiB: use.MemoryMiB.Used, CPUMHz: use.CPUMHz.Used,
	}, nil
}

// AuditLog returns the stored entries. If others can't be stored now, it adds an error that says
// so.
func (r query) AuditLog(ctx context.Context, tenant, actor, action, object *string, failed *bool, from, to *time.Time, first *int, after *string, newestFirst *bool) (model.AuditEntryConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.AuditEntryConnection{}, err
	}
	only, err := ofTenant(tenant)
	if err != nil {
		return model.AuditEntryConnection{}, err
	}
	filter := audit.Filter{
		Tenant: only, Actor: orZero(actor), Action: orZero(action), Object: orZero(object), Failed: failed, From: orZero(from), To: orZero(to), NewestFirst: orZero(newestFirst),
	}
	found, err := r.engine.Callers.AuditLog(ctx, filter, page.First, page.After)
	if err == nil {
		found.Entries, found.More, err = withinMemory(ctx, found.Entries, func(i int) int { return found.Sizes[i] }, found.More)
	}
	if err == nil && found.Waiting > 0 {
		graphql.AddError(ctx, runtime.Errorf(runtime.CodeClusterUnavailable, "%d entries are missing here, because they can't be stored now: see health", found.Waiting))
	}
	return model.PageOf(found.Entries, func(e audit.Entry) string { return e.ID }, found.More, 0), err
}

func (r auditEntry) ActorKind(_ context.Context, of *audit.Entry) (string, error) {
	return string(of.Actor.Kind), nil
}

func (r auditEntry) ActorID(_ context.Context, of *audit.Entry) (string, error) {
	return of.Actor.ID, nil
}

func (r auditEntry) ActorName(_ context.Context, of *audit.Entry) (string, error) {
	return of.Actor.Name, nil
}

func (r auditEntry) Address(_ context.Context, of *audit.Entry) (*string, error) {
	if !of.Address.IsValid() {
		return nil, nil
	}
	return orNull(of.Address.String()), nil
}

func (r auditEntry) Tenant(_ context.Context, of *audit.Entry) (*string, error) {
	return tenantName(of.Tenant, of.Tenant == audit.WholeServer), nil
}
