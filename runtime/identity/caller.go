package identity

import (
	"context"
	"net/netip"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// A Caller is a principal, for as long as it is known.
type Caller struct {
	access.Principal
	ended context.Context // when its token ends, or the server begins to need one; nil: never
	until time.Time       // when its grant expires; zero: it has none
}

// At returns the caller at an address.
func (c Caller) At(address netip.Addr) Caller {
	c.Address = address
	return c
}

// Bind returns a context in which the caller acts. It ends with ctx, and with
// UNAUTHENTICATED as its cause when the caller's token or grant ends. Call release
// when it isn't needed any more.
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

// Unauthenticated returns why a caller isn't known.
func unauthenticated(format string, args ...any) *runtime.Error {
	return runtime.Errorf(runtime.CodeUnauthenticated, format, args...)
}

var errUnknown = unauthenticated("the token isn't one of this server's, or it was revoked, or has expired")

// Authenticate returns the caller who shows a token or a grant; "" is nothing. It
// takes the same time for every token that is wrong.
func (b *Book) Authenticate(shown string) (Caller, error) {
	if shown == "" {
		if b.Open() {
			return b.anonymous(), nil
		}
		return Caller{}, unauthenticated(`this server needs a token: send the header "Authorization: Bearer TOKEN"`)
	}
	if IsGrant(shown) {
		return b.authenticateGrant(shown)
	}
	if b.Open() {
		return b.anonymous(), nil // as ever: a server that needs no token reads none
	}
	hash := hashOf(shown)
	if b.first != nil && same(hash, b.first.Hash) {
		return Caller{Principal: b.first.Principal(), ended: b.first.ended}, nil
	}
	var known *liveToken
	if id, ok := idOf(shown); ok {
		b.mu.RLock()
		known = b.tokens[id]
		b.mu.RUnlock()
	}
	expected := make([]byte, len(hash))
	if known != nil {
		expected = known.Hash
	}
	if !same(hash, expected) {
		return Caller{}, errUnknown
	}
	return known.caller()
}

// anonymous returns the caller who shows nothing, until the server needs tokens.
func (b *Book) anonymous() Caller {
	return Caller{Principal: access.Anonymous(), ended: b.nobody.ended}
}

// caller returns who shows the token.
func (t *liveToken) caller() (Caller, error) {
	if t.ended.Err() != nil {
		return Caller{}, context.Cause(t.ended)
	}
	if now, last := time.Now().UnixMilli(), t.used.Load(); now-last > time.Second.Milliseconds() && t.used.CompareAndSwap(last, now) {
		t.dirty.Store(true)
	}
	return Caller{Principal: t.Principal(), ended: t.ended}, nil
}

// ByID returns the caller with a token's id, for what was signed for it; "" is the
// caller who shows nothing.
func (b *Book) ByID(id string) (Caller, error) {
	if id == "" {
		return b.Authenticate("")
	}
	if b.first != nil && id == b.first.ID {
		return Caller{Principal: b.first.Principal(), ended: b.first.ended}, nil
	}
	b.mu.RLock()
	known := b.tokens[id]
	b.mu.RUnlock()
	if known == nil {
		return Caller{}, errUnknown
	}
	return known.caller()
}

// Token returns the token that a text is, if it hasn't ended.
func (b *Book) Token(text string) (access.Token, bool) {
	caller, err := b.Authenticate(text)
	if err != nil || caller.Grant != nil {
		return access.Token{}, false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	t := b.tokens[caller.ID]
	if t == nil {
		return access.Token{}, false
	}
	return t.Token, true
}
