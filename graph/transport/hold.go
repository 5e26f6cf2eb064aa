package transport

import (
	"context"
	"net/http"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/extension"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"

	"github.com/rockpool/rockpool/graph/transport/peers"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// What requests and answers take. The figures are measured: see
// TestDecodingTakesWhatIsCounted.
const (
	freeBody   = peers.FreeBody
	fieldBytes = 512 // of memory for each field, while an operation is carried out: 40,000 fields of runners took 515 each
	tokenBytes = 256 // of memory for each token of a document: a list's numbers take 216 each

	// These are free in each operation. The bound of operations covers them.
	freeFields = 64
	freeTokens = 128
)

// LeastBodies is what a budget must have for one body of at most maxBody bytes.
func LeastBodies(maxBody int64) int64 { return maxBody + peers.MaxValues*peers.ValueBytes }

// A hold is what one request or message has taken of the bounds. It is for one
// goroutine at a time; resolvers take turns by charges. The zero value holds nothing and
// is bounded by nothing.
type hold struct {
	peers.Hold
	working int64    // of bytes: what carrying out the operation takes
	waiting int64    // of bytes: a subscription's answer that isn't written yet
	largest int64    // of bytes: the buffer of a subscription's largest answer
	charges *charges // nil: resolvers take nothing
	ended   func()   // gives back a subscription of the caller's quota; nil: there is none
}

// holdOf returns a hold for a request's or WebSocket's peer.
func (s Settings) holdOf(ctx context.Context) *hold {
	return &hold{Hold: s.Peers.Hold(ctx, shown(access.FromContext(ctx)))}
}

// shown returns what a caller shows.
func shown(p access.Principal) peers.Shown {
	if p.Grant != nil {
		return peers.Shown{Token: p.ID, Grant: p.Grant.ID}
	}
	return peers.Shown{Token: p.ID}
}

// subscribe counts an operation as a subscription from now on.
func (s Settings) subscribe(ctx context.Context, h *hold) error {
	if err := h.Subscribe(); err != nil || s.Subscribing == nil {
		return err
	}
	done, err := s.Subscribing(ctx)
	h.ended = done
	return err
}

// execute takes what an operation's fields need, before it starts. Resolvers take what
// they read by Charge, when they read it: an operation that waits for output holds no
// memory for it.
func (s Settings) execute(h *hold, op operation) error {
	stats := extension.GetComplexityStats(graphql.WithOperationContext(context.Background(), op.context))
	if stats == nil || s.Fields == nil || stats.Complexity <= freeFields {
		return nil
	}
	return h.work(int64(s.Fields(op.context)-freeFields) * fieldBytes)
}

// work takes n bytes of memory until there is an answer.
func (h *hold) work(n int64) error {
	err := h.Grow(n)
	if err == nil {
		h.working += max(n, 0)
	}
	return err
}

// answered replaces the work's memory by the answer's, which is held until that is
// written. It takes more only where the answer is larger than the work.
func (h *hold) answered(kind ast.Operation, answer []byte) error {
	work := h.working
	left := work - max(int64(len(answer))-freeBody, 0)
	h.working = 0
	if err := h.Grow(-left); err != nil {
		h.Shrink(work)
		return withoutAnswer(kind, err)
	}
	h.Shrink(left)
	return nil
}

// wait takes the memory of a subscription's answer above DefaultBudget, until again.
func (h *hold) wait(answer []byte) error {
	more := int64(len(answer) - DefaultBudget)
	err := h.Grow(more)
	if err == nil {
		h.waiting += max(more, 0)
	}
	return err
}

// keep takes, until the subscription ends, the memory of the buffer in which gqlgen
// writes each answer: twice the largest, above DefaultBudget.
func (h *hold) keep(answer []byte) error {
	more := int64(2*len(answer)-DefaultBudget) - h.largest
	err := h.Grow(more)
	if err == nil {
		h.largest += max(more, 0)
	}
	return err
}

// again gives back what a subscription's last answer took: resolvers, and the answer,
// which has been written.
func (h *hold) again() {
	h.charges.mu.Lock()
	defer h.charges.mu.Unlock()
	charged := max(h.charges.bytes-freeBody, 0)
	h.Shrink(charged + h.waiting)
	h.working -= charged
	h.waiting, h.charges.bytes = 0, 0
}

// withoutAnswer returns the error for an operation whose answer finds no memory. Nobody should repeat
// a mutation that was carried out.
func withoutAnswer(kind ast.Operation, err error) error {
	if kind != ast.Mutation {
		return err
	}
	return runtime.Errorf(runtime.CodeLimitExceeded, "the mutation was carried out, but there is no memory for its answer (--body-memory): ask for the rest by smaller queries")
}

// charges are what an operation's resolvers take, which may do so at once.
type charges struct {
	mu    sync.Mutex
	h     *hold // nil: it was released
	bytes int64 // with those that are free
}

type chargesKey struct{}

// charging returns a context whose operation takes memory by Charge.
func (h *hold) charging(ctx context.Context) context.Context {
	h.charges = &charges{h: h}
	return context.WithValue(ctx, chargesKey{}, h.charges)
}

// Charge takes so many bytes of [peers.Bounds].Bodies for the operation of ctx, until it has
// its answer. Where there are too few it returns QUOTA_EXCEEDED, for a mutation
// LIMIT_EXCEEDED. Resolvers may call it at once.
func Charge(ctx context.Context, bytes int64) error {
	c, ok := ctx.Value(chargesKey{}).(*charges)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.h == nil {
		return context.Canceled // nobody waits for the answer any more
	}
	if err := c.h.work(max(c.bytes+bytes-freeBody, 0) - max(c.bytes-freeBody, 0)); err != nil {
		return withoutAnswer(graphql.GetOperationContext(ctx).Operation.Operation, err)
	}
	c.bytes += bytes
	return nil
}

// release gives back all.
func (h *hold) release() {
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

// move returns another hold of all that h has, which has nothing any more.
func (h *hold) move() *hold {
	moved := *h
	*h = hold{}
	return &moved
}

// decodeParams reads an operation.
func (h *hold) decodeParams(ctx context.Context, text []byte) (*graphql.RawParams, error) {
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

// parse takes what a document needs beside its text.
func (h *hold) parse(document string) error {
	return h.Grow(int64(Tokens(document)-freeTokens) * tokenBytes)
}

// MaxTokens bounds a document; the executor refuses a longer one.
const MaxTokens = 20_000

// Tokens returns how many tokens a document has, to its end, its first error or MaxTokens.
func Tokens(document string) (n int) {
	tokens := lexer.New(&ast.Source{Input: document})
	for ; n < MaxTokens; n++ {
		if token, err := tokens.ReadToken(); err != nil || token.Kind == lexer.EOF {
			break
		}
	}
	return n
}

// statusOf returns the status for err: status, but this one if a bound of peers was reached.
func statusOf(w http.ResponseWriter, err error, bounded, status int) int {
	if runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		return status
	}
	w.Header().Set("Retry-After", peers.RetryAfter)
	return bounded
}
