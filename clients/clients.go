// Package clients limits what clients may use at the server's edge. It counts connections, requests,
// operations, subscriptions and memory of each peer, of each token and of all together, and refuses
// what exceeds a limit; nothing waits. It finds the client behind a trusted proxy, and reads bodies
// within limits of size and time. A write to a peer that reads nothing fails (see [GuardedConn]), and a connection
// ends at a request that a proxy may delimit differently from net/http (see [Listener]).
//
// Only the edge (this package, graph/transport and compat) counts the memory of requests. Packages
// below it return pages of bounded size; see docs/decisions/0063.
package clients

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/rockpool/rockpool/runtime"
)

// Bounds are what a peer, a token and all peers together may use concurrently. 0 means no limit.
type Bounds struct {
	AllConnections     int   // of all peers
	Connections        int   // of one peer
	Operations         int   // of one peer: requests that are read or answered
	Subscriptions      int   // of one peer
	TokenOperations    int   // of all callers with the same token or the same grant, or without one
	TokenSubscriptions int   // of the same callers
	TokenBodies        int64 // the part of Bodies for all callers with the same token or a grant of it; callers without one may have all
	Bodies             int64 // bytes of memory for all bodies, messages and answers, without the free bytes of each
	PeerBodies         int64 // the part of Bodies for one peer
}

// A Bound is one of the limits. String returns its name in metrics.
type Bound int

// The limits, and other reasons to refuse a peer.
const (
	Connections Bound = iota
	PeerConnections
	PeerOperations
	PeerSubscriptions
	PeerBodies
	TokenOperations
	TokenSubscriptions
	TokenBodies
	GrantOperations
	GrantSubscriptions
	Bodies
	Framing // a request with two lengths; see framingReader
	Fields  // a request with too many header fields
	bounds  // their number
)

// boundNames are the names of the limits in metrics.
var boundNames = [bounds]string{"CONNECTIONS", "PEER_CONNECTIONS", "PEER_OPERATIONS", "PEER_SUBSCRIPTIONS", "PEER_BODIES", "TOKEN_OPERATIONS", "TOKEN_SUBSCRIPTIONS", "TOKEN_BODIES", "GRANT_OPERATIONS", "GRANT_SUBSCRIPTIONS", "BODIES", "FRAMING", "FIELDS"}

func (b Bound) String() string { return boundNames[b] }

// refusals are the messages for the limits: which one, by which setting, and what to do.
var refusals = [bounds]string{
	Connections:        "the server has reached its limit of connections (--connections): try again later",
	PeerConnections:    "this address has reached the limit of connections (--peer-connections): close some",
	PeerOperations:     "this address has reached the limit of concurrent operations (--peer-operations): try again when some have ended",
	PeerSubscriptions:  "this address has reached the limit of subscriptions (--peer-subscriptions): end some",
	PeerBodies:         "this address has reached the limit of memory for requests and answers (half of --body-memory, or enough for one of the largest): try again when some have ended",
	TokenOperations:    "callers with this token or grant, or all callers without one, have reached the limit of concurrent operations (--token-operations): try again when some have ended",
	TokenSubscriptions: "callers with this token or grant, or all callers without one, have reached the limit of subscriptions (--token-subscriptions): end some",
	TokenBodies:        "all callers with this token and its grants have reached the limit of memory for requests and answers (three quarters of --body-memory): try again when some have ended",
	GrantOperations:    "all grants of one token have reached the limit of concurrent operations (16 times --token-operations): try again when some have ended",
	GrantSubscriptions: "all grants of one token have reached the limit of subscriptions (16 times --token-subscriptions): end some",
	Bodies:             "all callers together have reached the limit of memory for requests and answers (--body-memory): try again later",
}

// A budget limits an amount that is held concurrently. It has no queue: what doesn't fit is
// refused. It is safe for concurrent use, and never blocks.
type budget struct {
	limit int64 // 0 means no limit
	used  atomic.Int64
}

// acquire takes n, or returns false and takes nothing.
func (b *budget) acquire(n int64) bool {
	for {
		used := b.used.Load()
		if b.limit > 0 && used+n > b.limit {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// acquire takes n of each budget, except of those that are nil. If one is full, it takes nothing and
// returns its index; otherwise -1.
func acquire(n int64, of ...*budget) (full int) {
	for i, b := range of {
		if b != nil && !b.acquire(n) {
			release(n, of[:i]...)
			return i
		}
	}
	return -1
}

func release(n int64, of ...*budget) {
	for _, b := range of {
		if b != nil {
			b.used.Add(-n)
		}
	}
}

// A Limiter counts what each peer has, and limits it. A peer is an IPv4 address, or an IPv6 network of
// 64 bits, which one machine can have entirely. All callers of a Unix socket are one peer. So are
// all callers through one proxy that isn't trusted; see [Limiter.Handler]. A nil Limiter has no limits.
// It is safe for concurrent use.
type Limiter struct {
	bounds  Bounds
	proxies []netip.Prefix
	all     counters // of all, which have no common limit
	bodies  budget
	turns   *semaphore.Weighted // of those who decode large bodies
	most    int64               // of turns

	refused     [bounds]atomic.Int64
	connections budget

	mu     sync.Mutex // guards the fields below, and the holders of each
	peers  map[netip.Addr]*caller
	tokens map[Credential]*token
}

// grantShare is how many times the limits of one grant all grants of a token have together. A token
// can make any number of grants.
const grantShare = 16

// A token counts what all callers with the same token or grant use. It exists as long as they use
// something.
type token struct {
	counters
	grants  counters // of all grants that the token made
	name    Credential
	bodies  budget
	holders int
}

// holdToken returns the token with a credential, and holds it until releaseToken is called.
func (p *Limiter) holdToken(name Credential) *token {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.tokens[name]
	if of == nil {
		of = &token{name: name}
		of.operations.limit, of.subscriptions.limit = int64(p.bounds.TokenOperations), int64(p.bounds.TokenSubscriptions)
		of.grants.operations.limit, of.grants.subscriptions.limit = grantShare*of.operations.limit, grantShare*of.subscriptions.limit
		if name.Token != "" {
			of.bodies.limit = p.bounds.TokenBodies
		}
		p.tokens[name] = of
	}
	of.holders++
	return of
}

// releaseToken ends a hold of holdToken. The last one forgets the token.
func (p *Limiter) releaseToken(of *token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of.holders--; of.holders == 0 {
		delete(p.tokens, of.name)
	}
}

// counters are what a peer has, or all callers with the same token or grant.
type counters struct{ operations, subscriptions budget }

// A caller is one peer. It exists as long as it holds something.
type caller struct {
	counters
	address     netip.Addr
	name        string // see PeerName
	trusted     bool   // it is a proxy, whose connections aren't limited
	connections budget
	bodies      budget
	holders     int // connections, and Keep
}

// New returns a Limiter that trusts proxies at these addresses.
func New(b Bounds, proxies ...netip.Prefix) *Limiter {
	p := &Limiter{bounds: b, proxies: proxies, bodies: budget{limit: b.Bodies}, connections: budget{limit: int64(b.AllConnections)}, peers: map[netip.Addr]*caller{}, tokens: map[Credential]*token{}}
	p.most = max(b.Bodies/decodeShare, DefaultBody)
	p.turns = semaphore.NewWeighted(p.most)
	return p
}

// holdPeer returns the peer of an address, and holds it until releasePeer is called. A trusted IPv6 proxy
// isn't the same peer as others in its network.
func (p *Limiter) holdPeer(address netip.Addr) *caller {
	key, trusted := identity(address), p.trusts(address)
	if trusted {
		key = address
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.peers[key]
	if of == nil {
		of = &caller{address: key, name: peerName(key), trusted: trusted, connections: budget{limit: int64(p.bounds.Connections)}, bodies: budget{limit: p.bounds.PeerBodies}}
		if trusted {
			of.connections.limit = 0
		}
		of.operations.limit, of.subscriptions.limit = int64(p.bounds.Operations), int64(p.bounds.Subscriptions)
		p.peers[key] = of
	}
	of.holders++
	return of
}

// releasePeer ends a hold of holdPeer. The last one forgets the peer.
func (p *Limiter) releasePeer(of *caller) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of.holders--; of.holders == 0 {
		delete(p.peers, of.address)
	}
}

func (p *Limiter) acquireConnection(of *caller) error {
	if full := acquire(1, &of.connections, &p.connections); full >= 0 {
		return p.refuse([...]Bound{PeerConnections, Connections}[full])
	}
	return nil
}

func (p *Limiter) releaseConnection(of *caller) { release(1, &of.connections, &p.connections) }

// identity returns the address or network that identifies a peer; zero for a Unix socket.
func identity(ip netip.Addr) netip.Addr {
	if ip.Is4() {
		return ip
	}
	network, err := ip.Prefix(64)
	if err != nil { // it isn't an address
		return netip.Addr{}
	}
	return network.Addr()
}

// PeerName returns a name that identifies the peer of a request; "" if the server lacks
// [ConnContext].
func PeerName(ctx context.Context) string {
	if from, ok := clientOf(ctx); ok {
		return from.peer.name
	}
	switch of := ConnOf(ctx).(type) {
	case *conn:
		return of.peer.name
	case net.Conn:
		return peerName(identity(addressOf(of.RemoteAddr())))
	}
	return ""
}

// peerName returns the name of the peer with an identity; see PeerName.
func peerName(identity netip.Addr) string { return "peer " + identity.String() }

// A Usage is what all peers use now, and how often each limit refused one.
type Usage struct {
	Peers         int
	Connections   int64
	Operations    int64
	Subscriptions int64
	BodyBytes     int64 // bytes of memory for bodies, messages and answers
	BodyLimit     int64
	Refused       map[Bound]int64
}

// Usage returns the present usage. It is safe for concurrent use, and never blocks for long.
func (p *Limiter) Usage() Usage {
	p.mu.Lock()
	known := len(p.peers)
	p.mu.Unlock()
	u := Usage{Peers: known, Connections: p.connections.used.Load(), Operations: p.all.operations.used.Load(), Subscriptions: p.all.subscriptions.used.Load(), BodyBytes: p.bodies.used.Load(), BodyLimit: p.bodies.limit, Refused: map[Bound]int64{}}
	for b := range bounds {
		u.Refused[b] = p.refused[b].Load()
	}
	return u
}

func (p *Limiter) refuse(b Bound) error {
	p.refused[b].Add(1)
	return runtime.Errorf(runtime.CodeQuotaExceeded, "%s", refusals[b])
}

// A Life is the lifetime of a server. Work that outlasts its request ends with it.
type Life struct {
	Ends  context.Context       // ends when the server begins to stop; nil for a request to a server without a Life
	Enter func() (leave func()) // registers work that the server must wait for before its engine ends
}

type lifeKey struct{}

// In returns the context for a request to a server with this life.
func (l Life) In(ctx context.Context) context.Context { return context.WithValue(ctx, lifeKey{}, l) }

// LifeOf returns the life of a request's server.
func LifeOf(ctx context.Context) Life {
	life, _ := ctx.Value(lifeKey{}).(Life)
	return life
}
