package graph

import (
	"context"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/audit"
)

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
		found.Entries, found.More, err = withinMemory(ctx, found.Entries, found.More)
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
