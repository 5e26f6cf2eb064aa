package graph

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/graph/download"
	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/language"
	"github.com/rockpool/rockpool/runtime/versions"
)

// A resolver resolves every field that isn't a plain struct field. Its methods are in files by
// topic. It is safe for concurrent use.
type resolver struct {
	engine    *engine.Services
	languages *language.Set
	measured  *versions.Cache // versions of the languages
	version   string
	links     *download.Links
}

// Each of these types resolves the fields of one GraphQL type. The methods below say which.
type (
	query       struct{ *resolver }
	mutation    struct{ *resolver }
	environment struct{ *resolver }
	recipe      struct{ *resolver }
	cluster     struct{ *resolver }
	evaluation  struct{ *resolver }
	runner      struct{ *resolver }
	file        struct{ *resolver }
	execution   struct{ *resolver }
	batchFields struct{ *resolver }
	principal   struct{ *resolver }
	token       struct{ *resolver }
	tenant      struct{ *resolver }
	tickets     struct{ *resolver }
	auditEntry  struct{ *resolver }
)

// subscription resolves subscriptions. Only a follower serves executionEvents and fileChanges, so only
// its subscription has their events.
type subscription struct {
	*resolver
	events  <-chan model.ExecutionEvent
	changes <-chan runtime.FileChange
}

// Query and the following methods implement generated.ResolverRoot.
func (r *resolver) Query() generated.QueryResolver               { return query{r} }
func (r *resolver) Mutation() generated.MutationResolver         { return mutation{r} }
func (r *resolver) Subscription() generated.SubscriptionResolver { return subscription{resolver: r} }
func (r *resolver) Environment() generated.EnvironmentResolver   { return environment{r} }
func (r *resolver) Language() generated.LanguageResolver         { return recipe{r} }
func (r *resolver) Cluster() generated.ClusterResolver           { return cluster{r} }
func (r *resolver) Evaluation() generated.EvaluationResolver     { return evaluation{r} }
func (r *resolver) Runner() generated.RunnerResolver             { return runner{r} }
func (r *resolver) File() generated.FileResolver                 { return file{r} }
func (r *resolver) Execution() generated.ExecutionResolver       { return execution{r} }
func (r *resolver) Batch() generated.BatchResolver               { return batchFields{r} }
func (r *resolver) Caller() generated.CallerResolver             { return principal{r} }
func (r *resolver) Token() generated.TokenResolver               { return token{r} }
func (r *resolver) Ticket() generated.TicketResolver             { return tickets{r} }
func (r *resolver) AuditEntry() generated.AuditEntryResolver     { return auditEntry{r} }
func (r *resolver) Tenant() generated.TenantResolver             { return tenant{r} }

func (r query) Version(ctx context.Context) (string, error) {
	_, err := r.engine.Callers.Allowed(ctx, "version")
	return r.version, err
}

func (r query) Cluster(ctx context.Context) (runtime.ClusterStatus, error) {
	return r.engine.Server.ClusterStatus(ctx)
}

func (r query) Health(ctx context.Context) (activity.Health, error) {
	return r.engine.Server.Health(ctx)
}

// orNull returns nil for a zero value. The API shows it as null.
func orNull[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// orZero returns the zero value for nil. The engine treats it as not given.
func orZero[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

func (r mutation) DrainCluster(ctx context.Context, in generated.DrainClusterInput) (generated.DrainClusterPayload, error) {
	if err := r.engine.Server.SetDraining(ctx, in.Draining); err != nil {
		return generated.DrainClusterPayload{}, err
	}
	status, err := r.engine.Server.ClusterStatus(ctx)
	return generated.DrainClusterPayload{Cluster: status}, err
}

func (r cluster) Evaluations(
	ctx context.Context, _ *runtime.ClusterStatus, env, runner *string, status []runtime.EvaluationStatus, first *int, after *string,
) (model.EvaluationConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.EvaluationConnection{}, err
	}
	found, total, err := r.engine.Server.Evaluations(ctx, scheduling(env, runner, status, page))
	key := func(evaluation runtime.Evaluation) string { return string(evaluation.ID) }
	return model.LoadedPage(found, key, page, total), err
}

func (r cluster) Allocations(
	ctx context.Context, _ *runtime.ClusterStatus, env, runner *string, status []runtime.AllocationStatus, first *int, after *string,
) (model.AllocationConnection, error) {
	page, err := model.ParsePage(first, after)
	if err != nil {
		return model.AllocationConnection{}, err
	}
	found, total, err := r.engine.Server.Allocations(ctx, scheduling(env, runner, status, page))
	key := func(allocation runtime.Allocation) string { return string(allocation.ID) }
	return model.LoadedPage(found, key, page, total), err
}

func (r cluster) TaskEvents(ctx context.Context, _ *runtime.ClusterStatus, id string) ([]runtime.TaskEvent, error) {
	return r.engine.Runners.TaskEvents(ctx, runtime.RunnerID(id))
}

// scheduling returns a filter for one page. It requests one entry more, which shows whether there
// is another page.
func scheduling[S ~string](env, runner *string, status []S, page model.Page) runtime.SchedulingFilter[S] {
	return runtime.SchedulingFilter[S]{
		EnvironmentID: runtime.EnvironmentID(orZero(env)), RunnerID: runtime.RunnerID(orZero(runner)), Statuses: status,
		After: page.After, Limit: page.First + 1,
	}
}

func (r evaluation) WaitMs(_ context.Context, of *runtime.Evaluation) (float64, error) {
	return model.Milliseconds(of.Waited(time.Now())), nil
}

func (r evaluation) WorkMs(_ context.Context, of *runtime.Evaluation) (*float64, error) {
	worked, ok := of.Worked()
	if !ok {
		return nil, nil
	}
	return new(model.Milliseconds(worked)), nil
}
