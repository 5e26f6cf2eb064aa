// Package transport carries GraphQL operations over HTTP: POST, GET, multipart requests with files,
// server-sent events in the distinct connections mode of GraphQL over SSE, and WebSockets with the
// subprotocol graphql-transport-ws. Package clients limits what they use together.
//
// They guarantee: A peer can't make the server hold more than a fixed number of bytes, operations
// and goroutines, whatever it sends and however slowly it reads. A vanished peer is forgotten
// within two keepalives. When Serve returns, every goroutine that served the request has ended.
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

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
)

// A Message is one answer of an operation, ready to be sent.
type Message struct {
	Payload []byte // a GraphQL response as JSON; it is shared between watchers: don't change it
	Cursor  string // resume after it; "" if it can't be resumed
}

// A Stream returns an operation's answers. Use it in one goroutine.
type Stream interface {
	// Next waits for the next answer. io.EOF is the end. Any other error is presented to the
	// client, and ends the operation. ctx is the operation's: it has gqlgen's operation context,
	// and Charge takes memory for it.
	Next(ctx context.Context) (Message, error)
	Close()
}

// A Source opens subscriptions faster than the executor. It returns nil without an error for a
// subscription that it doesn't know. The cursor after is from a header with which a client resumes. It
// has precedence over the operation's own. ctx is as for Stream.Next.
type Source func(ctx context.Context, op *graphql.OperationContext, after string) (Stream, error)

// Settings are shared by all transports. Zero is replaced by the default; see the constants.
type Settings struct {
	Source  Source                                               // may be nil
	Present func(ctx context.Context, err error) *gqlerror.Error // converts all errors
	Recover func(ctx context.Context, panicked any) error
	// Admit authenticates a WebSocket by the payload of connection_init. It returns the context in
	// which the WebSocket acts, or a refusal. If that context ends with UNAUTHENTICATED, the
	// WebSocket ends. If it is nil, all are served. For other transports, the request's context has the
	// caller.
	Admit func(ctx context.Context, payload map[string]any) (acting context.Context, refusal string)
	// Subscribing takes a subscription from the caller's quota until done is called. If it is nil, there is
	// no quota.
	Subscribing func(ctx context.Context) (done func(), err error)
	// Operation is called with each operation before it runs: its type ("query", "mutation" or
	// "subscription") and its name, or "". ctx has the values of its request's context.
	// If it is nil, nothing is called.
	Operation func(ctx context.Context, kind, name string)
	// Peers limits what each peer, and all together, may use. If it is nil, only the limits of one request
	// and one WebSocket apply.
	Peers *clients.Limiter
	// Fields returns how many fields an operation's answer may have. If it is nil, they aren't counted.
	Fields func(op *graphql.OperationContext) int

	Early         time.Duration // after it, the head of an answer is sent before the answer is complete
	MaxBody       int64         // bytes of a body, and of a WebSocket's message
	MaxOperations int           // concurrent ones of one WebSocket
	Budget        int           // bytes that may wait for a subscription's reader; one more message at most
	SlowAfter     time.Duration // if no byte of its budget becomes free for so long, a resumable subscription ends
	Patience      time.Duration // a peer that reads nothing for so long is disconnected
	InitTimeout   time.Duration // for connection_init
	Keepalive     time.Duration // a quiet peer is pinged after it, and disconnected after twice this
	Silence       time.Duration // an upload of which nothing arrives for so long is aborted; below the agent's 60 s
}

// The defaults of Settings.
const (
	DefaultMaxOperations = 100
	DefaultBudget        = 64 << 10
	DefaultSlowAfter     = 30 * time.Second
	DefaultPatience      = 2 * time.Minute // on loopback a reader of 1 KiB/s opens its window once in 64 s
	DefaultInitTimeout   = 10 * time.Second
	DefaultKeepalive     = 12 * time.Second
)

// WithDefaults returns s with the defaults for zero values.
func (s Settings) WithDefaults() Settings {
	s.Early = cmp.Or(s.Early, clients.DefaultEarly)
	s.MaxBody = cmp.Or(s.MaxBody, clients.DefaultBody)
	s.MaxOperations = cmp.Or(s.MaxOperations, DefaultMaxOperations)
	s.Budget = cmp.Or(s.Budget, DefaultBudget)
	s.SlowAfter = cmp.Or(s.SlowAfter, DefaultSlowAfter)
	s.Patience = cmp.Or(s.Patience, DefaultPatience)
	s.InitTimeout = cmp.Or(s.InitTimeout, DefaultInitTimeout)
	s.Keepalive = cmp.Or(s.Keepalive, DefaultKeepalive)
	s.Silence = cmp.Or(s.Silence, clients.DefaultSilence)
	return s
}

// An operation is parsed and validated.
type operation struct {
	exec    graphql.GraphExecutor
	context *graphql.OperationContext
}

// prepare parses and validates an operation. If refused isn't nil, the client gets it instead of an
// operation.
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

// kind returns whether the operation is a query, a mutation or a subscription.
func (o operation) kind() ast.Operation { return o.context.Operation.Operation }

// open starts an operation. It returns its stream, and the context for the stream's Next. An error
// of the source becomes the stream's only answer, as an error of a resolver does.
func (s Settings) open(ctx context.Context, op operation, h *reservation, after string) (context.Context, Stream) {
	ctx = h.charging(ctx)
	if op.kind() == ast.Subscription && s.Source != nil {
		ctx = graphql.WithOperationContext(ctx, op.context)
		stream, err := s.Source(ctx, op.context, after)
		if err != nil {
			return ctx, &once{Message{Payload: Encode(&graphql.Response{Errors: gqlerror.List{s.Present(ctx, err)}, Data: []byte("null")})}}
		}
		if stream != nil {
			return ctx, stream
		}
	}
	next, ctx := op.exec.DispatchOperation(ctx, op.context)
	return ctx, responses{next, op.kind(), h}
}

// responses are the executor's answers.
type responses struct {
	next graphql.ResponseHandler
	kind ast.Operation
	h    *reservation
}

// Next implements Stream. The memory of the answer is taken from the reservation.
func (r responses) Next(ctx context.Context) (Message, error) {
	answered := r.next(ctx)
	if answered == nil {
		return Message{}, io.EOF
	}
	answer := Encode(answered)
	if r.kind == ast.Subscription {
		return Message{Payload: answer}, r.h.holdBuffer(answer)
	}
	return Message{Payload: answer}, r.h.answered(r.kind, answer)
}

func (responses) Close() {}

// once is a stream with one answer.
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

// pump moves a stream's answers to a queue. It returns nil at the stream's end, and the operation's
// error otherwise. It waits for room before it requests the next answer, so that streams of states
// send the newest.
//
// once means that there is only one answer: pump then returns before the answer is written. For a
// subscription it releases one answer's memory before it requests the next.
func (s Settings) pump(ctx context.Context, stream Stream, queue *opQueue, h *reservation, once bool) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = s.Recover(ctx, panicked)
		}
	}()
	cursor := ""
	for {
		patience := s.SlowAfter
		if cursor == "" {
			patience = s.Patience // it couldn't resume
		}
		if err := queue.waitForRoom(ctx, patience); err != nil {
			if errors.Is(err, errSlow) {
				return slowConsumer(cursor)
			}
			return cmp.Or(callerEnded(ctx), err)
		}
		if !once {
			h.releaseAnswer()
		}
		message, err := stream.Next(ctx)
		if errors.Is(err, io.EOF) {
			return callerEnded(ctx)
		}
		if err != nil {
			return cmp.Or(callerEnded(ctx), err)
		}
		if !once {
			if err := h.holdAnswer(message.Payload); err != nil {
				return err
			}
		}
		cursor = message.Cursor
		queue.push(message)
		if once {
			return nil
		}
	}
}

// callerEnded returns why an operation ended, if it ended because its caller's token or grant did.
// The operation's own error would be less clear. It returns nil if the caller's token or grant is valid.
func callerEnded(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if cause := context.Cause(ctx); runtime.CodeOf(cause) == runtime.CodeUnauthenticated {
		return cause
	}
	return nil
}

// slowConsumer returns the error for a reader that fell behind. cursor is that of the last event
// before it.
func slowConsumer(cursor string) error {
	err := &gqlerror.Error{Message: "the subscriber read too slowly, so its subscription was ended: subscribe again with this cursor as after"}
	err.Extensions = map[string]any{"code": runtime.CodeSlowConsumer, "retryable": true}
	if cursor == "" {
		err.Message = "the subscriber read too slowly, so its subscription was ended: subscribe again"
	} else {
		err.Extensions["cursor"] = cursor
	}
	return err
}

// startingPatience is how long a request waits for a server that is starting. Most starts take
// less.
const startingPatience = 5 * time.Second

// Starting says when a server has restored its state. A server responds earlier, for example while it
// waits for its cluster.
type Starting struct{ Over <-chan struct{} } // closed then; nil if it has already

// IsOver reports whether the start is over. It doesn't block.
func (s Starting) IsOver() bool {
	select {
	case <-s.Over:
		return true
	default:
		return s.Over == nil
	}
}

// Wait waits for the end of the start, at most startingPatience. It returns CLUSTER_UNAVAILABLE if
// that comes later, or ctx ends.
func (s Starting) Wait(ctx context.Context) *runtime.Error {
	if s.IsOver() {
		return nil
	}
	late := time.NewTimer(startingPatience)
	defer late.Stop()
	select {
	case <-s.Over:
		return nil
	case <-late.C:
	case <-ctx.Done():
	}
	return runtime.Errorf(runtime.CodeClusterUnavailable, "the server is starting: it waits for its cluster: try again later; health says more")
}

// Guard serves requests with next when the start is over.
func (s Starting) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Wait(r.Context()); err != nil {
			RefuseTyped(w, http.StatusServiceUnavailable, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
