package graph

import (
	"context"
	"errors"

	"github.com/99designs/gqlgen/graphql"

	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/response"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/files"
)

func (r runner) SearchFiles(ctx context.Context, of *runtime.Runner, path, name, containing *string, maxMatches *int) (runtime.FileSearch, error) {
	return r.engine.Files.Search(ctx, of.ID, files.Search{Path: orZero(path), Name: orZero(name), Text: orZero(containing), MaxMatches: maxMatches})
}

func (r fileSearch) Limit(_ context.Context, of *runtime.FileSearch) (*runtime.FileSearchLimit, error) {
	return orNull(of.Limit), nil
}

func (r fileMatch) Line(_ context.Context, of *runtime.FileMatch) (*int, error) {
	return orNull(of.Line), nil
}

func (r fileMatch) Text(_ context.Context, of *runtime.FileMatch) (*string, error) {
	return orNull(of.Text), nil
}

func (r fileChange) Path(_ context.Context, of *runtime.FileChange) (*string, error) {
	return orNull(of.Path), nil
}

// FileChanges isn't called: a changeStream serves fileChanges, since a channel can't return the
// error that ends it.
func (r subscription) FileChanges(context.Context, string, *string, *bool) (<-chan runtime.FileChange, error) {
	return nil, errors.New("fileChanges is served by the follower")
}

// A changeStream is one subscription to fileChanges. Its Next returns the error that ends it.
type changeStream struct {
	watch   *files.Watch
	left    func()
	field   graphql.CollectedField
	changes chan runtime.FileChange // capacity 1: the change that respond encodes next
	respond graphql.ResponseHandler
}

// followFiles starts a subscription to file changes.
func (f *follower) followFiles(ctx context.Context, op *graphql.OperationContext, field graphql.CollectedField) (transport.Stream, error) {
	args := field.ArgumentMap(op.Variables)
	id, err := model.UnmarshalRunnerID(args["runnerId"])
	if err != nil {
		return nil, at(field, runtime.Invalid("runnerId", "must be a string or a whole number"))
	}
	path, _ := args["path"].(string)
	recursive, _ := args["recursive"].(bool)
	watch, err := f.resolver.engine.Files.Watch(ctx, id, path, recursive)
	if err != nil {
		return nil, at(field, err)
	}
	s := &changeStream{watch: watch, left: f.resolver.engine.CountSubscription(activity.WatchFileChanges), field: field, changes: make(chan runtime.FileChange, 1)}
	exec := newExecutor(f.presenter, generated.Config{Resolvers: watchedFiles{f.resolver, s.changes}})
	s.respond, _ = exec.DispatchOperation(ctx, op)
	return s, nil
}

// watchedFiles are the resolvers of one stream. Its fileChanges are the stream's changes.
type watchedFiles struct {
	*resolver
	changes <-chan runtime.FileChange
}

func (w watchedFiles) Subscription() generated.SubscriptionResolver {
	return watchedSubscription{subscription{w.resolver}, w.changes}
}

// A watchedSubscription replaces fileChanges of subscription.
type watchedSubscription struct {
	subscription
	changes <-chan runtime.FileChange
}

func (s watchedSubscription) FileChanges(context.Context, string, *string, *bool) (<-chan runtime.FileChange, error) {
	return s.changes, nil
}

// Next implements transport.Stream.
func (s *changeStream) Next(ctx context.Context) (transport.Message, error) {
	change, err := s.watch.Next(ctx)
	if err != nil {
		return transport.Message{}, at(s.field, err)
	}
	// This doesn't block: changes has room for one, and respond takes it.
	s.changes <- change
	answered := s.respond(ctx)
	if answered == nil {
		return transport.Message{}, context.Cause(ctx)
	}
	return transport.Message{Payload: response.Append(nil, answered)}, nil
}

// Close implements transport.Stream.
func (s *changeStream) Close() {
	s.watch.Close()
	s.left()
}
