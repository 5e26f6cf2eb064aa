package transport

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// The memory of requests and answers. The numbers are measured: see TestDecodingTakesTheCountedMemory.
const (
	fieldBytes = 512 // of memory for each field while an operation runs: 40,000 fields of runners took 515 each
	tokenBytes = 256 // of memory for each token of a document: numbers in a list take 216 each

	// The first fields and tokens of each operation are free. The limit of concurrent operations
	// covers them.
	freeFields = 64
	freeTokens = 128

	lineBytes = 16                           // of memory for each line of a document: a block string is split at its lines
	freeLines = clients.FreeBody / lineBytes // free like freeTokens
)

// A reservation is what one request or message has taken from the bounds. Use it in one goroutine at a
// time; resolvers take turns through charges. The zero value holds nothing, and has no bounds.
type reservation struct {
	clients.Reservation
	working int64    // bytes for the running operation
	waiting int64    // bytes of a subscription's answer that isn't written yet
	largest int64    // bytes of the buffer of a subscription's largest answer
	charges *charges // nil if resolvers can't charge
	ended   func()   // gives back a subscription of the caller's quota; nil if there is none
}

// reserve returns a reservation for the peer of a request or WebSocket.
func (s Settings) reserve(ctx context.Context) *reservation {
	return &reservation{Reservation: s.Peers.Reserve(ctx, clients.CredentialOf(access.FromContext(ctx)))}
}

// subscribe counts an operation as a subscription from now on. It returns QUOTA_EXCEEDED if there
// is no room.
func (s Settings) subscribe(ctx context.Context, h *reservation) error {
	if err := h.Subscribe(); err != nil || s.Subscribing == nil {
		return err
	}
	done, err := s.Subscribing(ctx)
	h.ended = done
	return err
}

// execute charges the memory for an operation's fields before it starts. Resolvers charge memory
// for what they read when they read it, so an operation that waits for output holds none for it.
func (s Settings) execute(h *reservation, op operation) error {
	stats := extension.GetComplexityStats(graphql.WithOperationContext(context.Background(), op.context))
	if stats == nil || s.Fields == nil || stats.Complexity <= freeFields {
		return nil
	}
	return h.growWork(int64(s.Fields(op.context)-freeFields) * fieldBytes)
}

// growWork takes n bytes of memory until there is an answer.
func (h *reservation) growWork(n int64) error {
	err := h.Grow(n)
	if err == nil {
		h.working += max(n, 0)
	}
	return err
}

// answered replaces the operation's memory by the answer's, which is held until the answer is
// written. It takes more only if the answer is larger.
func (h *reservation) answered(kind ast.Operation, answer []byte) error {
	work := h.working
	left := work - max(int64(len(answer))-clients.FreeBody, 0)
	h.working = 0
	// left is negative if the answer is larger.
	if err := h.Grow(-left); err != nil {
		h.Shrink(work)
		return withoutAnswer(kind, err)
	}
	h.Shrink(left)
	return nil
}

// holdAnswer takes the memory of a subscription's answer above DefaultBudget, until releaseAnswer releases it.
func (h *reservation) holdAnswer(answer []byte) error {
	more := int64(len(answer) - DefaultBudget)
	err := h.Grow(more)
	if err == nil {
		h.waiting += max(more, 0)
	}
	return err
}

// holdBuffer takes the memory of the buffer in which gqlgen writes each answer, until the subscription
// ends: twice the largest answer, above DefaultBudget.
func (h *reservation) holdBuffer(answer []byte) error {
	more := int64(2*len(answer)-DefaultBudget) - h.largest
	err := h.Grow(more)
	if err == nil {
		h.largest += max(more, 0)
	}
	return err
}

// releaseAnswer gives back what a subscription's last answer took: the charges of its resolvers, and the
// written answer.
func (h *reservation) releaseAnswer() {
	h.charges.mu.Lock()
	defer h.charges.mu.Unlock()
	charged := max(h.charges.bytes-clients.FreeBody, 0)
	h.Shrink(charged + h.waiting)
	h.working -= charged
	h.waiting, h.charges.bytes, h.charges.ahead = 0, 0, 0
}

// withoutAnswer returns the error for an operation whose answer doesn't fit in memory. For a
// mutation it says that the mutation was carried out, so that no client repeats it.
func withoutAnswer(kind ast.Operation, err error) error {
	if kind != ast.Mutation {
		return err
	}
	return runtime.Errorf(runtime.CodeLimitExceeded, "the mutation was carried out, but there is no memory for its answer (--body-memory): don't repeat it, query its result in smaller parts")
}

// charges are what an operation's resolvers take. They are safe for concurrent use.
type charges struct {
	mu    sync.Mutex
	h     *reservation // nil if it was released
	bytes int64        // including the free ones
	ahead int64        // those of bytes that ChargeAhead took for later calls of Charge
}

// A chargesKey is the key of *charges in an operation's context.
type chargesKey struct{}

// charging returns a context in which Charge takes memory for the operation.
func (h *reservation) charging(ctx context.Context) context.Context {
	h.charges = &charges{h: h}
	return context.WithValue(ctx, chargesKey{}, h.charges)
}

// Charge takes bytes of [clients.Bounds].Bodies for the operation of ctx, until it has its answer. If
// too few are left, it returns QUOTA_EXCEEDED, for a mutation LIMIT_EXCEEDED. It is safe for
// concurrent use.
func Charge(ctx context.Context, bytes int64) error { return charge(ctx, bytes, 0) }

// ChargeAhead is Charge that also takes ahead bytes for later calls of Charge. These take so much less.
func ChargeAhead(ctx context.Context, bytes, ahead int64) error {
	return charge(ctx, bytes+ahead, ahead)
}

func charge(ctx context.Context, bytes, ahead int64) error {
	c, ok := ctx.Value(chargesKey{}).(*charges)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ahead == 0 {
		ahead = -min(bytes, c.ahead)
		bytes += ahead
	}
	if c.h == nil {
		return context.Canceled // the answer is no longer needed
	}
	if err := c.h.growWork(max(c.bytes+bytes-clients.FreeBody, 0) - max(c.bytes-clients.FreeBody, 0)); err != nil {
		return withoutAnswer(graphql.GetOperationContext(ctx).Operation.Operation, err)
	}
	c.bytes += bytes
	c.ahead += ahead
	return nil
}

// release gives everything back.
func (h *reservation) release() {
	if h.charges != nil {
		h.charges.mu.Lock()
		defer h.charges.mu.Unlock()
		h.charges.h = nil
	}
	h.Release()
	if h.ended != nil {
		h.ended()
		h.ended = nil
	}
	h.working, h.waiting, h.largest = 0, 0, 0
}

// move returns another reservation with everything that h has. h is empty afterwards.
func (h *reservation) move() *reservation {
	moved := *h
	*h = reservation{}
	return &moved
}

// decodeParams decodes an operation, and charges its memory.
func (h *reservation) decodeParams(ctx context.Context, text []byte) (*graphql.RawParams, error) {
	if err := h.Expand(text); err != nil {
		return nil, err
	}
	var params *graphql.RawParams
	err := h.Turn(ctx, len(text), func() (err error) {
		params, err = decodeParams(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return params, h.parse(params.Query)
}

// parse charges the memory for a document's lines, which finding its tokens takes, and then for its tokens.
func (h *reservation) parse(document string) error {
	lines := strings.Count(document, "\n") + strings.Count(document, "\r")
	if err := h.Grow(int64(lines-freeLines) * lineBytes); err != nil {
		return err
	}
	return h.Grow(int64(Tokens(document)-freeTokens) * tokenBytes)
}

// MaxTokens is the largest number of tokens of a document. The executor refuses a longer one.
const MaxTokens = 20_000

// Tokens returns how many tokens a document has until its end, its first error or MaxTokens.
func Tokens(document string) (n int) {
	tokens := lexer.New(&ast.Source{Input: document})
	for ; n < MaxTokens; n++ {
		if token, err := tokens.ReadToken(); err != nil || token.Kind == lexer.EOF {
			break
		}
	}
	return n
}

// statusOf returns bounded if err is about a bound of peers, otherwise status. For the former it
// sets the header Retry-After.
func statusOf(w http.ResponseWriter, err error, bounded, status int) int {
	if runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		return status
	}
	w.Header().Set("Retry-After", clients.RetryAfter)
	return bounded
}
