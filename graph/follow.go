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
	"github.com/rockpool/rockpool/graph/presenter"
	"github.com/rockpool/rockpool/graph/transport"
	"github.com/rockpool/rockpool/graph/transport/response"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/activity"
	"github.com/rockpool/rockpool/runtime/events"
)

// A follower serves executionEvents to transports. It encodes output, which is most of the data,
// once for all subscribers with the same selection. Each other event goes through an executor
// separately.
type follower struct {
	resolver  *resolver
	presenter presenter.Presenter
	feeds     feed.Feeds
}

// follow implements transport.Source.
func (f *follower) follow(ctx context.Context, op *graphql.OperationContext, after string) (transport.Stream, error) {
	fields := graphql.CollectFields(op, op.Operation.SelectionSet, []string{"Subscription"})
	if len(fields) == 1 && fields[0].Name == "fileChanges" {
		return f.followFiles(ctx, op, fields[0])
	}
	if len(fields) != 1 || fields[0].Name != "executionEvents" {
		return nil, nil
	}
	field := fields[0]
	args := field.ArgumentMap(op.Variables)
	id, after, err := followArguments(args, after)
	if err != nil {
		return nil, at(field, err)
	}
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
		return nil, at(field, runtime.Errorf(runtime.CodeLimitExceeded, "select an event's %s only once: a slow reader keeps each copy in memory", name))
	}
	// Subscribers with the same key share the encoded output.
	watcher, err := f.feeds.Watch(feed.Key{Execution: id, Selection: encode.selection(), Resizes: resizes}, after, open, encode.encode)
	if err != nil {
		return nil, at(field, err)
	}
	s := &eventStream{watcher: watcher, left: f.resolver.engine.CountSubscription(activity.WatchExecution), field: field, events: make(chan model.ExecutionEvent, 1)}
	// The executor encodes all other events. Its resolvers return those of this stream.
	exec := newExecutor(f.presenter, generated.Config{Resolvers: followed{f.resolver, s.events}})
	s.respond, _ = exec.DispatchOperation(ctx, op)
	return s, nil
}

// followed are the resolvers of one stream. Its executionEvents are the stream's events.
type followed struct {
	*resolver
	events <-chan model.ExecutionEvent
}

func (f followed) Subscription() generated.SubscriptionResolver {
	return followedSubscription{subscription{f.resolver}, f.events}
}

// A followedSubscription replaces executionEvents of subscription.
type followedSubscription struct {
	subscription
	events <-chan model.ExecutionEvent
}

func (s followedSubscription) ExecutionEvents(context.Context, string, *string, *bool) (<-chan model.ExecutionEvent, error) {
	return s.events, nil
}

// followArguments returns the arguments of executionEvents. The cursor resume has precedence over
// the argument after.
func followArguments(args map[string]any, resume string) (id runtime.ExecutionID, after string, err error) {
	id, err = model.UnmarshalExecutionID(args["executionId"])
	if err != nil {
		return "", "", runtime.Invalid("executionId", "must be a string or a whole number")
	}
	if resume != "" {
		return id, resume, nil
	}
	if args["after"] != nil {
		if after, err = model.UnmarshalString(args["after"]); err != nil {
			return "", "", runtime.Invalid("after", "must be a string")
		}
	}
	return id, after, nil
}

// at adds the path of a field to an error.
func at(field graphql.CollectedField, err error) error {
	return gqlerror.WrapPath(ast.Path{ast.PathName(field.Alias)}, err)
}

// An eventStream is one subscription to executionEvents.
type eventStream struct {
	watcher *feed.Watcher
	left    func() // ends its count as a watcher
	field   graphql.CollectedField
	events  chan model.ExecutionEvent // capacity 1: the event that respond encodes next
	respond graphql.ResponseHandler
}

// Next implements transport.Stream.
func (s *eventStream) Next(ctx context.Context) (transport.Message, error) {
	item, err := s.watcher.Next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return transport.Message{}, io.EOF
	case err != nil:
		return transport.Message{}, at(s.field, err)
	case item.Encoded != nil:
		return transport.Message{Payload: item.Encoded, Cursor: item.Event.Cursor}, nil
	}
	// This doesn't block: events has room for one, and respond takes it.
	s.events <- model.NewExecutionEvent(item.Event)
	answered := s.respond(ctx)
	if answered == nil {
		return transport.Message{}, context.Cause(ctx)
	}
	return transport.Message{Payload: response.Append(nil, answered), Cursor: item.Event.Cursor}, nil
}

// Close implements transport.Stream.
func (s *eventStream) Close() {
	s.watcher.Close()
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

// newOutputEncoder returns the encoder for the fields that an operation selects below field.
func newOutputEncoder(op *graphql.OperationContext, field graphql.CollectedField) *outputEncoder {
	e := &outputEncoder{start: `{"data":{` + quote(field.Alias) + ":"}
	for _, selected := range graphql.CollectFields(op, field.Selections, []string{"ExecutionOutput", "ExecutionEvent"}) {
		e.fields = append(e.fields, outputField{quote(selected.Alias) + ":", selected.Name})
	}
	return e
}

// quote returns a name as a JSON string.
func quote(name string) string { return string(response.AppendString(nil, []byte(name))) }

// twice returns the name of the data field that is selected more than once; "": none is. In JSON,
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
		return response.AppendString(to, event.Data)
	case "base64":
		to = base64.StdEncoding.AppendEncode(append(to, '"'), event.Data)
		return append(to, '"')
	case "at":
		return append(event.At.UTC().AppendFormat(append(to, '"'), time.RFC3339Nano), '"')
	}
	return append(to, "null"...)
}
