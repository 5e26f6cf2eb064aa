// Package transport carries GraphQL operations over HTTP: POST, GET, multipart
// requests with files, server-sent events in the distinct connections mode of
// GraphQL over SSE, and WebSockets with the subprotocol graphql-transport-ws.
// Each is a graphql.Transport. Package peers bounds what they take together.
//
// What they guarantee: no peer makes the server hold more than a fixed number
// of bytes, operations and goroutines, whatever it sends and however slowly it
// reads; a peer that vanished is forgotten within the keepalive; and when Do
// returns, every goroutine that served the request has ended.
package transport

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/rockpool/rockpool/graph/transport/arriving"
	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/graph/transport/response"
	"github.com/rockpool/rockpool/runtime"
)

// A Message is one answer of an operation, ready to be sent.
type Message struct {
	Payload []byte // a GraphQL response as JSON; many watchers may share it, so nobody changes it
	Cursor  string // resumes after it; "" where nothing can be resumed
}

// A Stream is an operation's answers. It is for one goroutine.
type Stream interface {
	// Next waits for the next answer; io.EOF is the end. Another error is
	// presented to the client, and ends the operation. ctx is the operation's: it has
	// gqlgen's operation context, and Charge takes memory by it.
	Next(ctx context.Context) (Message, error)
	Close()
}

// A Source opens subscriptions that have a faster way than the executor's; nil
// without an error means that this one has none. A client that resumes by a
// header gives the cursor as after, which goes before the operation's own. ctx is
// as for Stream.Next.
type Source func(ctx context.Context, op *graphql.OperationContext, after string) (Stream, error)

// Settings are what all transports share. The zero value of each bound is its
// default; see the constants.
type Settings struct {
	Source  Source                                               // may be nil
	Present func(ctx context.Context, err error) *gqlerror.Error // the one way out for errors
	Recover func(ctx context.Context, panicked any) error
	// Admit returns the context in which a WebSocket acts, or why it isn't served, by the
	// payload of connection_init. That context's end with UNAUTHENTICATED ends the WebSocket.
	// Nil: all are served. The callers of other transports are in their request's context.
	Admit func(ctx context.Context, payload map[string]any) (acting context.Context, refusal string)
	// Subscribing takes a subscription of the caller's quota, until done is called. Nil:
	// there is none.
	Subscribing func(ctx context.Context) (done func(), err error)
	// Operation is called with each operation that is about to run: its type ("query", "mutation" or
	// "subscription"), and its name; "": it has none. ctx has the values of its request's context. Nil: nothing is called.
	Operation func(ctx context.Context, kind, name string)
	// Peers bounds what each peer, and all together, may take. Nil: nothing is bounded
	// beyond one request and one WebSocket.
	Peers *peers.Peers
	// Fields returns how many fields an operation's answer may have. Nil: they aren't
	// counted.
	Fields func(op *graphql.OperationContext) int

	MaxBody       int64         // bytes of a body, and of a WebSocket's message
	MaxOperations int           // on one WebSocket at a time
	Budget        int           // bytes that may wait for a subscription's reader; one message more at most
	SlowAfter     time.Duration // without a byte of its budget coming free a subscription that can be resumed ends
	Patience      time.Duration // a peer that takes nothing at all for so long is cut off
	InitTimeout   time.Duration // for connection_init
	Keepalive     time.Duration // a quiet peer is asked for a sign after it, and forgotten after twice of it
	Silence       time.Duration // an upload of which nothing comes for so long is given up; below the agent's 60 s
}

// The defaults of Settings.
const (
	DefaultMaxBody       = peers.DefaultBody // fits the files of an exercise many times over
	DefaultMaxOperations = 100
	DefaultBudget        = 64 << 10
	DefaultSlowAfter     = 30 * time.Second
	DefaultPatience      = 2 * time.Minute // on loopback a reader of 1 KiB/s opens its window once in 64 s
	DefaultInitTimeout   = 10 * time.Second
	DefaultKeepalive     = 12 * time.Second
)

// WithDefaults fills in what is zero.
func (s Settings) WithDefaults() Settings {
	s.MaxBody = cmp.Or(s.MaxBody, DefaultMaxBody)
	s.MaxOperations = cmp.Or(s.MaxOperations, DefaultMaxOperations)
	s.Budget = cmp.Or(s.Budget, DefaultBudget)
	s.SlowAfter = cmp.Or(s.SlowAfter, DefaultSlowAfter)
	s.Patience = cmp.Or(s.Patience, DefaultPatience)
	s.InitTimeout = cmp.Or(s.InitTimeout, DefaultInitTimeout)
	s.Keepalive = cmp.Or(s.Keepalive, DefaultKeepalive)
	s.Silence = cmp.Or(s.Silence, arriving.DefaultSilence)
	return s
}

// An operation is one that was parsed and validated.
type operation struct {
	exec    graphql.GraphExecutor
	context *graphql.OperationContext
}

// prepare parses and validates. refused, if not nil, is what the client gets
// instead of an operation.
func (s Settings) prepare(ctx context.Context, exec graphql.GraphExecutor, params *graphql.RawParams, header http.Header) (op operation, refused *graphql.Response) {
	now := graphql.Now()
	params.Headers, params.ReadTime = header, graphql.TraceTiming{Start: now, End: now}
	opCtx, errs := exec.CreateOperationContext(ctx, params)
	if errs != nil {
		return operation{}, exec.DispatchError(graphql.WithOperationContext(ctx, opCtx), errs)
	}
	if s.Operation != nil {
		s.Operation(ctx, string(opCtx.Operation.Operation), opCtx.Operation.Name)
	}
	return operation{exec, opCtx}, nil
}

func (o operation) kind() ast.Operation { return o.context.Operation.Operation }

// open starts an operation. It returns its stream, and the context that the stream's
// Next must be called with. An error of the source becomes a stream's only answer, as
// one of a resolver does.
func (s Settings) open(ctx context.Context, op operation, h *hold, after string) (context.Context, Stream) {
	ctx = h.charging(ctx)
	if op.kind() == ast.Subscription && s.Source != nil {
		ctx = graphql.WithOperationContext(ctx, op.context)
		stream, err := s.Source(ctx, op.context, after)
		if err != nil {
			return ctx, &once{Message{Payload: response.Append(nil, &graphql.Response{Errors: gqlerror.List{s.Present(ctx, err)}, Data: []byte("null")})}}
		}
		if stream != nil {
			return ctx, stream
		}
	}
	next, ctx := op.exec.DispatchOperation(ctx, op.context)
	return ctx, responses{next, op.kind(), h}
}

// responses are what the executor answers.
type responses struct {
	next graphql.ResponseHandler
	kind ast.Operation
	h    *hold
}

func (r responses) Next(ctx context.Context) (Message, error) {
	answered := r.next(ctx)
	if answered == nil {
		return Message{}, io.EOF
	}
	answer := response.Append(nil, answered)
	if r.kind == ast.Subscription {
		return Message{Payload: answer}, r.h.keep(answer)
	}
	return Message{Payload: answer}, r.h.answered(r.kind, answer)
}

func (responses) Close() {}

// once has one answer.
type once struct{ message Message }

func (o *once) Next(context.Context) (Message, error) {
	if o.message.Payload == nil {
		return Message{}, io.EOF
	}
	m := o.message
	o.message.Payload = nil
	return m, nil
}

func (*once) Close() {}

// pump sends a stream's answers to a lane until the end (nil), or until ctx
// ends. It waits for room before it asks for the next, so that the newest is
// sent where only that counts. Another error is the operation's last word. once says
// that there is one answer: then it doesn't wait until that is written. For a
// subscription it gives back one answer's memory before it asks for the next.
func (s Settings) pump(ctx context.Context, stream Stream, lane *lane, h *hold, once bool) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = s.Recover(ctx, panicked)
		}
	}()
	cursor := ""
	for {
		patience := s.SlowAfter
		if cursor == "" {
			patience = s.Patience // it couldn't go on after an end
		}
		if err := lane.room(ctx, patience); err != nil {
			if errors.Is(err, errSlow) {
				return slowConsumer(cursor)
			}
			return cmp.Or(signedOut(ctx), err)
		}
		if !once {
			h.again()
		}
		message, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return signedOut(ctx)
		}
		if err != nil {
			return cmp.Or(signedOut(ctx), err)
		}
		if !once {
			if err := h.wait(message.Payload); err != nil {
				return err
			}
		}
		cursor = message.Cursor
		lane.push(message)
		if once {
			return nil
		}
	}
}

// signedOut returns why an operation ends whose caller's token or grant has ended: what that
// does to the operation, an end or a cancellation, says less. Nil: the caller is still known.
func signedOut(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); runtime.CodeOf(cause) == runtime.CodeUnauthenticated {
		return cause
	}
	return nil
}

// slowConsumer is the error for a reader that fell behind; the cursor is that
// of the last event before it.
func slowConsumer(cursor string) error {
	err := &gqlerror.Error{Message: "you read too slowly, and what you watch goes on without you: subscribe again with this cursor as after"}
	err.Extensions = map[string]any{"code": runtime.CodeSlowConsumer, "retryable": true}
	if cursor == "" {
		err.Message = "you read too slowly, and what you watch goes on without you: subscribe again"
	} else {
		err.Extensions["cursor"] = cursor
	}
	return err
}
