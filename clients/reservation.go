package clients

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// Decoding temporarily takes up to five times the text. So bodies above largeBody wait for their
// turn. Together they have at most an eighth of the budget (decodeShare), or one body of the
// default size.
const (
	largeBody   = 1 << 20
	decodeShare = 8
)

// DefaultBody is the default limit of a body, in bytes.
const DefaultBody = 32 << 20

// LeastMemory returns the smallest Bounds.Bodies that fits one body of at most maxBody bytes.
func LeastMemory(maxBody int64) int64 { return maxBody + MaxValues*ValueBytes }

// FreeBody is the number of bytes of each request and answer that aren't counted. The limit of
// concurrent operations covers them.
const FreeBody = 16 << 10

// ErrTooLong means that a body is longer than its limit.
var ErrTooLong = errors.New("too long")

// A Reservation is what one request or message has taken from the bounds. Use it in one goroutine at a
// time. The zero value holds nothing, and has no bounds.
type Reservation struct {
	peers      *Limiter
	peer       *caller
	credential Credential
	token      *token // for its operation; nil before it is taken
	owner      *token // for its memory, and for all grants of the token; nil before it is taken
	bytes      int64
	one        func(t *counters) *budget // operation or subscription; nil before either
}

// operations and subscriptions are the kinds that a Reservation can count as; see Reservation.one.
func operations(t *counters) *budget    { return &t.operations }
func subscriptions(t *counters) *budget { return &t.subscriptions }

// A Credential is the token or the grant of a request. All holders of a grant share the
// grant's bounds of operations and subscriptions. These are separate from the bounds of the token
// that made it, since a platform gives a grant to each of its users. All grants of one token
// together have 16 times as much. Their memory counts as the token's.
type Credential struct {
	Token string // the id of the token, or of the token that made the grant, or ""
	Grant string // the grant's id, or ""
}

// CredentialOf returns the credential of a caller.
func CredentialOf(p access.Principal) Credential {
	if p.Grant != nil {
		return Credential{Token: p.ID, Grant: p.Grant.ID}
	}
	return Credential{Token: p.ID}
}

// Reserve returns a Reservation for the peer of a request or WebSocket, whose context is ctx, and for its
// credential.
func (p *Limiter) Reserve(ctx context.Context, credential Credential) Reservation {
	if p == nil {
		return Reservation{}
	}
	h := Reservation{peers: p, credential: credential}
	if from, ok := clientOf(ctx); ok {
		h.peer = from.peer
	} else if of, ok := ConnOf(ctx).(*conn); ok {
		h.peer = of.peer
	}
	return h
}

// Keep keeps the peer of a WebSocket, whose context is ctx, known until forget is called.
// Operations may end later than their connection.
func (p *Limiter) Keep(ctx context.Context) (forget func()) {
	of := p.Reserve(ctx, Credential{}).peer
	if of == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of.holders++
	return func() { p.releasePeer(of) }
}

// Operate counts an operation. It returns QUOTA_EXCEEDED if a bound is reached.
func (h *Reservation) Operate() error {
	return h.count(operations, PeerOperations, TokenOperations, GrantOperations)
}

// Subscribe counts it as a subscription from now on. It returns QUOTA_EXCEEDED if a bound is
// reached.
func (h *Reservation) Subscribe() error {
	return h.count(subscriptions, PeerSubscriptions, TokenSubscriptions, GrantSubscriptions)
}

// count counts h as one of a kind with each of its counters, or with none if a bound is reached. If
// h counted as another kind, it no longer does.
func (h *Reservation) count(kind func(t *counters) *budget, ofPeer, ofToken, ofGrants Bound) error {
	if h.peers == nil {
		return nil
	}
	if h.token == nil {
		h.token = h.peers.holdToken(h.credential)
	}
	h.holdOwner()
	if full := acquire(1, h.counted(kind)...); full >= 0 {
		return h.peers.refuse([...]Bound{ofPeer, ofToken, ofGrants}[full])
	}
	h.uncount()
	h.one = kind
	return nil
}

// holdOwner finds the token whose memory the reservation takes.
func (h *Reservation) holdOwner() {
	if h.owner == nil {
		h.owner = h.peers.holdToken(Credential{Token: h.credential.Token})
	}
}

// counted returns the budgets of a kind in which it counts, or nil for those in which it doesn't. They
// are those of the peer, of the credential, of all grants of its token, and of all peers. The last has
// no bound.
func (h *Reservation) counted(kind func(t *counters) *budget) []*budget {
	of := []*budget{nil, kind(&h.token.counters), nil, kind(&h.peers.all)}
	if h.peer != nil {
		of[0] = kind(&h.peer.counters)
	}
	if h.credential.Grant != "" {
		of[2] = kind(&h.owner.grants)
	}
	return of
}

func (h *Reservation) uncount() {
	if h.one != nil {
		release(1, h.counted(h.one)...)
		h.one = nil
	}
}

// memory returns the budgets of memory: of the peer, of the token, and of all peers.
func (h *Reservation) memory() []*budget {
	h.holdOwner()
	of := []*budget{nil, &h.owner.bodies, &h.peers.bodies}
	if h.peer != nil {
		of[0] = &h.peer.bodies
	}
	return of
}

// Grow takes n more bytes of memory. It returns QUOTA_EXCEEDED if a bound is reached.
func (h *Reservation) Grow(n int64) error {
	if h.peers == nil || n <= 0 {
		return nil
	}
	if full := acquire(n, h.memory()...); full >= 0 {
		return h.peers.refuse([...]Bound{PeerBodies, TokenBodies, Bodies}[full])
	}
	h.bytes += n
	return nil
}

// Room returns how many more bytes the Reservation could take if nothing else held any. Grow always
// refuses more.
func (h *Reservation) Room() int64 {
	if h.peers == nil {
		return math.MaxInt64
	}
	bounds := []int64{h.peers.bodies.limit}
	if h.peer != nil {
		bounds = append(bounds, h.peer.bodies.limit)
	}
	if h.credential.Token != "" {
		bounds = append(bounds, h.peers.bounds.TokenBodies)
	}
	room := int64(math.MaxInt64)
	for _, most := range bounds {
		if most > 0 { // 0 means no limit
			room = min(room, most-h.bytes)
		}
	}
	return room
}

// Shrink gives n bytes of memory back.
func (h *Reservation) Shrink(n int64) {
	if h.peers == nil || n <= 0 {
		return
	}
	release(n, h.memory()...)
	h.bytes -= n
}

// Read reads a body of at most limit bytes. Its sender announced size bytes, or -1 for none. Read
// takes memory as bytes arrive, at most twice as much as has arrived: a body of which nothing
// arrives holds none. It returns what has arrived, also with an error: ErrTooLong, QUOTA_EXCEEDED
// for a bound of memory, or the error of from.
func (h *Reservation) Read(from io.Reader, size, limit int64) ([]byte, error) {
	most := limit
	if size >= 0 {
		most = min(size, limit)
	}
	most++ // to find the end, or that there is more
	first := int64(1 << 10)
	if size >= 0 {
		first = FreeBody
	}
	text := make([]byte, 0, min(most, first))
	for {
		if len(text) == cap(text) {
			to := min(2*int64(cap(text)), most)
			// The first FreeBody bytes take no memory of the bounds.
			if err := h.Grow(to - max(int64(cap(text)), FreeBody)); err != nil {
				return text, err
			}
			text = append(make([]byte, 0, to), text...)
		}
		n, err := from.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case int64(len(text)) > limit:
			return text, ErrTooLong
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return text, err
		case int64(len(text)) == most: // more than was announced
			return text, ErrTooLong
		}
	}
}

// ReleaseMemory gives the memory back. The operation still counts.
func (h *Reservation) ReleaseMemory() { h.Shrink(h.bytes) }

// Release gives everything back.
func (h *Reservation) Release() {
	h.uncount()
	h.ReleaseMemory()
	for _, of := range []**token{&h.token, &h.owner} {
		if *of != nil {
			h.peers.releaseToken(*of)
			*of = nil
		}
	}
}

// Turn calls do, which temporarily takes several times size bytes, when its turn comes. It returns
// the error of do, or CLUSTER_UNAVAILABLE if ctx ends before.
func (h *Reservation) Turn(ctx context.Context, size int, do func() error) error {
	if h.peers == nil || size <= largeBody {
		return do()
	}
	weight := min(int64(size), h.peers.most)
	if err := h.peers.turns.Acquire(ctx, weight); err != nil {
		return runtime.Wrap(runtime.CodeClusterUnavailable, err, "the request was cancelled, or the server is stopping")
	}
	defer h.peers.turns.Release(weight)
	return do()
}

// RetryAfter is the header's value for a refused request, in seconds.
const RetryAfter = "2"
