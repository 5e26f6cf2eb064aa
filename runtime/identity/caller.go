package identity

import (
	"context"
	"net/netip"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// A Caller is a principal together with the end of its token or grant.
type Caller struct {
	access.Principal
	ended context.Context // ends with the token, or with the first token for a caller without one; nil means never
	until time.Time       // expiry of its grant; the zero time means no grant
}

// At returns the caller with its network address.
func (c Caller) At(address netip.Addr) Caller {
	c.Address = address
	return c
}

// Bind returns a context with the caller's principal. It ends with ctx, and when the caller's token
// or grant ends, with UNAUTHENTICATED as its cause. Call release when it is no longer needed.
func (c Caller) Bind(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(access.With(ctx, c.Principal))
	stop := func() bool { return true }
	if c.ended != nil {
		stop = context.AfterFunc(c.ended, func() { cancel(context.Cause(c.ended)) })
	}
	if c.until.IsZero() {
		return ctx, func() { stop(); cancel(nil) }
	}
	timed, expire := context.WithDeadlineCause(ctx, c.until, errGrantExpired)
	return timed, func() { stop(); expire(); cancel(nil) }
}

func unauthenticated(format string, args ...any) *runtime.Error {
	return runtime.Errorf(runtime.CodeUnauthenticated, format, args...)
}

// errUnknown is the same for all invalid tokens, so that it doesn't reveal which ones exist.
var errUnknown = unauthenticated("the token is unknown to this server, revoked or expired")

// Authenticate returns the caller with a token or a grant; "" is a caller without either. It
// returns UNAUTHENTICATED if that isn't valid. It takes the same time for every wrong token.
func (r *Registry) Authenticate(shown string) (Caller, error) {
	if shown == "" {
		if r.Open() {
			return r.anonymous(), nil
		}
		return Caller{}, unauthenticated(`this server needs a token: send the header "Authorization: Bearer TOKEN"`)
	}
	if IsGrant(shown) {
		return r.authenticateGrant(shown)
	}
	if r.Open() {
		return r.anonymous(), nil // a server that requires no token ignores them
	}
	hash := hashOf(shown)
	if r.first != nil && same(hash, r.first.Hash) {
		return Caller{Principal: r.first.Principal(), ended: r.first.ended}, nil
	}
	var known *liveToken
	if id, ok := idOf(shown); ok {
		r.mu.RLock()
		known = r.tokens[id]
		r.mu.RUnlock()
	}
	// An unknown id is compared too, so that it takes as long as a wrong secret.
	expected := make([]byte, len(hash))
	if known != nil {
		expected = known.Hash
	}
	if !same(hash, expected) {
		return Caller{}, errUnknown
	}
	return known.caller()
}

// anonymous returns the caller without a token, who ends when the first token is made.
func (r *Registry) anonymous() Caller {
	return Caller{Principal: access.Anonymous(), ended: r.nobody.ended}
}

// caller returns the caller with the token, and records its use.
func (t *liveToken) caller() (Caller, error) {
	if t.ended.Err() != nil {
		return Caller{}, context.Cause(t.ended)
	}
	// The last use is recorded at most once a second, and if the clock was set back.
	if now, last := time.Now().UnixMilli(), t.used.Load(); (now-last > time.Second.Milliseconds() || now < last) && t.used.CompareAndSwap(last, now) {
		t.dirty.Store(true)
	}
	return Caller{Principal: t.Principal(), ended: t.ended}, nil
}

// ByID returns the caller with a token's id, for something that was signed for it; "" is a caller
// without a token.
func (r *Registry) ByID(id string) (Caller, error) {
	if id == "" {
		return r.Authenticate("")
	}
	if r.first != nil && id == r.first.ID {
		return Caller{Principal: r.first.Principal(), ended: r.first.ended}, nil
	}
	r.mu.RLock()
	known := r.tokens[id]
	r.mu.RUnlock()
	if known == nil {
		return Caller{}, errUnknown
	}
	return known.caller()
}

// Token returns the valid token with a text, and whether there is one.
func (r *Registry) Token(text string) (access.Token, bool) {
	caller, err := r.Authenticate(text)
	if err != nil || caller.Grant != nil {
		return access.Token{}, false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	t := r.tokens[caller.ID]
	if t == nil {
		return access.Token{}, false
	}
	return t.Token, true
}
