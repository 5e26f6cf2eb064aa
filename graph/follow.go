package graph

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/feed"
	"github.com/rockpool/rockpool/graph/generated"
	"github.com/rockpool/rockpool/graph/model"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/events"
)

// A follower serves executionEvents and fileChanges to transports, since a channel can't return the
// error that ends it. It encodes output, which is most of the data, once for all subscribers with the
// same selection. Each other event goes through an executor separately.
type follower struct {
	resolver  *resolver
	presenter transport.Presenter
	feeds     feed.Feeds
}

// follow implements transport.Source.
func (f *follower) follow(ctx context.Context, op *graphql.OperationContext, after string) (transport.Stream, error) {
	fields := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Subscription"})
	if len(fields) != 1 {
		return nil, nil
	}
	open := f.executionEvents
	switch fields[0].Name {
	case "executionEvents":
	case "fileChanges":
		open = f.fileChanges
	default:
		return nil, nil
	}
	stream, err := open(ctx, op, fields[0], after)
	if err != nil {
		return nil, at(fields[0], err)
	}
	return stream, nil
}

// executionEvents opens a stream of an execution's events. The cursor resume has precedence over the
// argument after.
func (f *follower) executionEvents(ctx context.Context, op *graphql.OperationContext, field graphql.CollectedField, resume string) (transport.Stream, error) {
	args := field.ArgumentMap(op.Variables)
	text, err := model.UnmarshalID(args["executionId"])
	if err != nil {
		return nil, runtime.Invalid("executionId", "must be a string or a whole number")
	}
	after := resume
	if after == "" && args["after"] != nil {
		if after, err = model.UnmarshalString(args["after"]); err != nil {
			return nil, runtime.Invalid("after", "must be a string")
		}
	}
	id := runtime.ExecutionID(text)
	resizes, _ := args["resizes"].(bool)
	open := func(after string) (feed.Source, error) { // checks access for each subscriber, also if another one has opened the same events
		events, err := f.resolver.engine.Executions.Events(ctx, id, after)
		if err != nil {
			return nil, err
		}
		if resizes {
			events.WithResizes()
		}
		events.Lending() // each event is encoded before the next is read
		return events, nil
	}
	encode := newOutputEncoder(op, field)
	if name := encode.twice(); name != "" {
		return nil, runtime.Errorf(runtime.CodeLimitExceeded, "select an event's %s only once: a slow reader keeps each copy in memory", name)
	}
	// Subscribers with the same key share the encoded output.
	watcher, err := f.feeds.Watch(feed.Key{Execution: id, Selection: encode.selection(), Resizes: resizes}, after, open, encode.encode)
	if err != nil {
		return nil, err
	}
	s := &eventStream[model.ExecutionEvent]{field: field, close: watcher.Close, left: f.resolver.engine.CountSubscription(activity.WatchExecution), events: make(chan model.ExecutionEvent, 1)}
	s.next = func(ctx context.Context) (event model.ExecutionEvent, encoded transport.Message, err error) {
		item, err := watcher.Next(ctx)
		encoded = transport.Message{Payload: item.Encoded, Cursor: item.Event.Cursor}
		if err == nil && item.Encoded == nil {
			event = model.NewExecutionEvent(item.Event)
		}
		return event, encoded, err
	}
	return s.start(ctx, op, f, streamResolver{resolver: f.resolver, events: s.events}), nil
}

// fileChanges opens a stream of changes of a runner's files.
func (f *follower) fileChanges(ctx context.Context, op *graphql.OperationContext, field graphql.CollectedField, _ string) (transport.Stream, error) {
	args := field.ArgumentMap(op.Variables)
	id, err := model.UnmarshalID(args["runnerId"])
	if err != nil {
		return nil, runtime.Invalid("runnerId", "must be a string or a whole number")
	}
	path, _ := args["path"].(string)
	recursive, _ := args["recursive"].(bool)
	watch, err := f.resolver.engine.Files.Watch(ctx, runtime.RunnerID(id), path, recursive)
	if err != nil {
		return nil, err
	}
	s := &eventStream[runtime.FileChange]{field: field, close: watch.Close, left: f.resolver.engine.CountSubscription(activity.WatchFileChanges), events: make(chan runtime.FileChange, 1)}
	s.next = func(ctx context.Context) (change runtime.FileChange, _ transport.Message, err error) {
		change, err = watch.Next(ctx)
		return change, transport.Message{}, err
	}
	return s.start(ctx, op, f, streamResolver{resolver: f.resolver, changes: s.events}), nil
}

// streamResolver are the resolvers of one stream. Its executionEvents or fileChanges are the stream's events.
type streamResolver struct {
	*resolver
	events  <-chan model.ExecutionEvent
	changes <-chan runtime.FileChange
}

func (f streamResolver) Subscription() generated.SubscriptionResolver {
	return subscription(f)
}

func (r subscription) ExecutionEvents(context.Context, string, *string, *bool) (<-chan model.ExecutionEvent, error) {
	return r.events, nil
}

func (r subscription) FileChanges(context.Context, string, *string, *bool) (<-chan runtime.FileChange, error) {
	return r.changes, nil
}

func at(field graphql.CollectedField, err error) error {
	return gqlerror.WrapPath(ast.Path{ast.PathName(field.Alias)}, err)
}

// An eventStream is one subscription. Its Next returns the error that ends it.
type eventStream[E any] struct {
	// next waits for the next event. If the message has a payload, that is the event, encoded.
	// Otherwise the executor encodes it, and the message has its cursor.
	next    func(ctx context.Context) (event E, message transport.Message, err error)
	close   func()
	left    func() // ends its count as a subscriber
	field   graphql.CollectedField
	events  chan E // capacity 1: the event that respond encodes next
	respond graphql.ResponseHandler
}

// start connects the stream with an executor whose resolvers return the stream's events.
func (s *eventStream[E]) start(ctx context.Context, op *graphql.OperationContext, f *follower, resolvers streamResolver) *eventStream[E] {
	s.respond, _ = newExecutor(f.presenter, generated.Config{Resolvers: resolvers}).DispatchOperation(ctx, op)
	return s
}

func (s *eventStream[E]) Next(ctx context.Context) (transport.Message, error) {
	event, message, err := s.next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return transport.Message{}, io.EOF
	case err != nil:
		return transport.Message{}, at(s.field, err)
	case message.Payload != nil:
		return message, nil
	}
	// This doesn't block: events has room for one, and respond takes it.
	s.events <- event
	answered := s.respond(ctx)
	if answered == nil {
		return transport.Message{}, context.Cause(ctx)
	}
	message.Payload = transport.Encode(answered)
	return message, nil
}

func (s *eventStream[E]) Close() {
	s.close()
	s.left()
}

// An outputEncoder writes an ExecutionOutput with the selected fields.
type outputEncoder struct {
	start  string // {"data":{"executionEvents":
	fields []outputField
}

// An outputField is a selected field of ExecutionOutput.
type outputField struct {
	key  string // "text":
	name string
}

func newOutputEncoder(op *graphql.OperationContext, field graphql.CollectedField) *outputEncoder {
	e := &outputEncoder{start: `{"data":{` + quote(field.Alias) + ":"}
	for _, selected := range graphql.CollectFields(op, field.Selections, []string{"ExecutionOutput", "ExecutionEvent"}) {
		e.fields = append(e.fields, outputField{quote(selected.Alias) + ":", selected.Name})
	}
	return e
}

func quote(name string) string { return string(transport.AppendString(nil, []byte(name))) }

// twice returns the name of the data field that is selected more than once, or "". In JSON,
// text takes up to six times the data.
func (e *outputEncoder) twice() string {
	seen := map[string]bool{}
	for _, field := range e.fields {
		if data := field.name == "text" || field.name == "base64"; data && seen[field.name] {
			return field.name
		}
		seen[field.name] = true
	}
	return ""
}

// selection returns a key that is equal for encoders with the same result.
func (e *outputEncoder) selection() string {
	var text strings.Builder
	text.WriteString(e.start)
	for _, field := range e.fields {
		text.WriteString(field.key + field.name + ",")
	}
	return text.String()
}

// encode returns the response for an event of output. Its result isn't reused.
func (e *outputEncoder) encode(event events.Event) []byte {
	size := len(e.start) + 256
	for _, field := range e.fields {
		switch field.name {
		case "text":
			size += len(event.Data) + len(event.Data)/16
		case "base64":
			size += base64.StdEncoding.EncodedLen(len(event.Data))
		}
	}
	to := append(make([]byte, 0, size), e.start...)
	separator := byte('{')
	for _, field := range e.fields {
		to = append(append(to, separator), field.key...)
		to = appendField(to, field.name, event)
		separator = ','
	}
	if separator == '{' {
		to = append(to, '{')
	}
	return append(to, "}}}"...)
}

// appendField appends the value of a field as JSON: null if the name is unknown.
func appendField(to []byte, name string, event events.Event) []byte {
	switch name {
	case "__typename":
		return append(to, `"ExecutionOutput"`...)
	case "cursor":
		return append(append(append(to, '"'), event.Cursor...), '"')
	case "stream":
		if event.Stream == runtime.Stderr {
			return append(to, `"STDERR"`...)
		}
		return append(to, `"STDOUT"`...)
	case "text":
		return transport.AppendString(to, event.Data)
	case "base64":
		to = base64.StdEncoding.AppendEncode(append(to, '"'), event.Data)
		return append(to, '"')
	case "at":
		return append(event.At.UTC().AppendFormat(append(to, '"'), time.RFC3339Nano), '"')
	}
	return append(to, "null"...)
}
