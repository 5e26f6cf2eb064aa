// Package identity authenticates callers. It keeps the tokens, the tenants and the key that signs
// grants, and turns a token or a grant into a principal. Package access decides what the principal
// may do.
//
// Everything is in memory, so authentication takes a microsecond. Every change is stored before it
// takes effect.
package identity

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/timing"
)

// A Store stores tokens and tenants.
type Store interface {
	Tokens(ctx context.Context) ([]access.Token, error)
	PutTokens(ctx context.Context, tokens ...access.Token) error // after an error some may be stored
	UseTokens(ctx context.Context, used map[string]time.Time) error
	DeleteTokens(ctx context.Context, ids []string) error
	Tenants(ctx context.Context) ([]runtime.Tenant, error)
	PutTenant(ctx context.Context, t runtime.Tenant) error
	DeleteTenant(ctx context.Context, id runtime.TenantID) error
}

// Quotas limits what tenants use.
type Quotas interface {
	SetTenant(t runtime.Tenant)
	Remove(id runtime.TenantID)
}

// Config are a Registry's settings.
type Config struct {
	Store      Store
	FirstToken string // token of the first administrator, which can't be revoked; "" means none
	Open       bool   // callers without a token may do everything until the first token is made
	Key        []byte // signs grants
	Quotas     Quotas // gets the tenants' quotas; nil means not needed
	Logger     *zap.Logger

	// Free returns an error if a deleted tenant of this name still has runners, waiting claims or
	// executions. No new tenant can have the name then. nil means names are always free.
	Free func(ctx context.Context, id runtime.TenantID) error
}

// A Registry keeps the tokens and tenants of a server. Its methods are safe for concurrent use.
type Registry struct {
	config Config
	first  *liveToken // of Config.FirstToken; nil means none
	nobody *liveToken // of callers without a token; ends when the first token is made
	grants grants
	clock  timing.Clock

	changing sync.Mutex // serializes changes, which are stored before they change memory

	mu      sync.RWMutex // guards the fields below
	tokens  map[string]*liveToken
	tenants map[runtime.TenantID]runtime.Tenant
}

type liveToken struct {
	access.Token
	ended context.Context // ends with the token; its cause says why
	end   context.CancelCauseFunc
	used  atomic.Int64 // Unix milliseconds of the last use; 0 means never
	dirty atomic.Bool  // used isn't stored yet
}

// errRevoked, errExpired and errClosed are why a known caller is no longer authenticated.
var (
	errRevoked = runtime.Errorf(runtime.CodeUnauthenticated, "the token was revoked")
	errExpired = runtime.Errorf(runtime.CodeUnauthenticated, "the token has expired")
	errClosed  = runtime.Errorf(runtime.CodeUnauthenticated, "this server requires tokens since its first one was made")
)

// New returns a registry that contains only the first token. Call Load.
func New(c Config) *Registry {
	r := &Registry{config: c, clock: timing.NewClock(), nobody: newLive(access.Token{}), grants: newGrants(c.Key), tokens: map[string]*liveToken{}, tenants: map[runtime.TenantID]runtime.Tenant{}}
	if c.FirstToken != "" {
		r.first = newLive(access.Token{ID: firstID(c.Key, c.FirstToken), Kind: access.KindToken, Name: "token file", AllTenants: true, Role: access.Admin, Hash: hashOf(c.FirstToken)})
	}
	r.config.FirstToken, r.config.Key = "", nil // secrets, which aren't needed again
	return r
}

// newLive returns a token with a context that ends when the token is revoked or expires.
func newLive(t access.Token) *liveToken {
	live := &liveToken{Token: t}
	if !t.LastUsedAt.IsZero() {
		live.used.Store(t.LastUsedAt.UnixMilli())
	}
	ended, end := context.WithCancelCause(context.Background())
	live.ended, live.end = ended, end
	switch {
	case !t.RevokedAt.IsZero():
		end(errRevoked)
	case !t.ExpiresAt.IsZero():
		timed, stop := context.WithDeadlineCause(ended, t.ExpiresAt, errExpired)
		live.ended, live.end = timed, func(cause error) { end(cause); stop() }
	}
	return live
}

// Load reads the stored tokens and tenants. Call it again when another server may have changed
// them. Tokens that were revoked meanwhile end.
func (r *Registry) Load(ctx context.Context) error {
	r.changing.Lock()
	defer r.changing.Unlock()
	tokens, err := r.config.Store.Tokens(ctx)
	if err != nil {
		return err
	}
	tenants, err := r.config.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.tokens
	r.tokens, r.tenants = map[string]*liveToken{}, map[runtime.TenantID]runtime.Tenant{}
	for _, t := range tokens {
		if known := old[t.ID]; known != nil && known.RevokedAt.Equal(t.RevokedAt) {
			r.tokens[t.ID] = known // unchanged: its context continues, and with it the calls that depend on it
			delete(old, t.ID)
			continue
		}
		t.ExpiresAt = r.clock.Anchor(t.ExpiresAt)
		r.tokens[t.ID] = newLive(t)
	}
	// The remaining ones were revoked or deleted by another server.
	for _, gone := range old {
		gone.end(errRevoked)
	}
	for _, t := range tenants {
		r.tenants[t.ID] = t
		r.setQuotas(t)
	}
	if len(r.tokens) > 0 {
		r.nobody.end(errClosed)
	}
	return nil
}

// followEvery is how often a server that doesn't lead reads the leader's changes. So it refuses a
// revoked token within 5 s.
const followEvery = 2 * time.Second

// Follow calls Load repeatedly until leads is closed, because afterwards only this server makes
// changes. It returns ctx's cause if ctx ends first. While the store is unreadable, everything
// stays as it was.
func (r *Registry) Follow(ctx context.Context, leads <-chan struct{}) error {
	tick := time.Tick(followEvery)
	for failing := false; ; {
		select {
		case <-tick:
			err := r.Load(ctx)
			if err != nil && !failing && ctx.Err() == nil {
				r.config.Logger.Warn("tokens are unreadable; a token revoked meanwhile stays valid until they are readable again", zap.Error(err))
			}
			failing = err != nil
		case <-leads:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// setQuotas passes a tenant's quotas on. The caller holds mu.
func (r *Registry) setQuotas(t runtime.Tenant) {
	if r.config.Quotas != nil {
		r.config.Quotas.SetTenant(t)
	}
}

// flushEvery is how often the last uses of tokens are stored.
const flushEvery = 30 * time.Second

// How long ended sessions and tokens stay in lists.
const (
	keepSessions = 24 * time.Hour
	keepTokens   = 30 * 24 * time.Hour
)

// Run stores the last uses of tokens regularly, and deletes tokens that ended long ago, until ctx
// ends. It returns ctx's cause.
func (r *Registry) Run(ctx context.Context) error {
	for tick := time.Tick(flushEvery); ; {
		select {
		case <-tick:
			r.flush(ctx)
			r.forget(ctx, r.clock.Now())
		case <-ctx.Done():
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			r.flush(late)
			return context.Cause(ctx)
		}
	}
}

// flush stores the last use of the tokens that were used since the previous flush. Those that could
// not be stored are tried again at the next one.
func (r *Registry) flush(ctx context.Context) {
	used := map[string]time.Time{}
	r.mu.RLock()
	for id, t := range r.tokens {
		if t.dirty.Swap(false) {
			used[id] = time.UnixMilli(t.used.Load())
		}
	}
	r.mu.RUnlock()
	if len(used) == 0 {
		return
	}
	if err := r.config.Store.UseTokens(ctx, used); err != nil {
		r.config.Logger.Warn("the last use of tokens could not be stored", zap.Error(err))
		r.mu.RLock()
		defer r.mu.RUnlock()
		for id := range used {
			if t := r.tokens[id]; t != nil {
				t.dirty.Store(true) // try again at the next flush
			}
		}
	}
}

// forget deletes tokens that ended long ago. A token stays while one that it made exists: see
// RevokeToken. One token always stays, because a server on loopback without any token requires
// none.
func (r *Registry) forget(ctx context.Context, now time.Time) {
	r.changing.Lock()
	defer r.changing.Unlock()
	var old []string
	r.mu.RLock()
	makers := r.makers()
	for id, t := range r.tokens {
		keep := keepTokens
		if t.Kind == access.KindSession {
			keep = keepSessions
		}
		if !makers[id] && t.Ended(now.Add(-keep)) && (t.RevokedAt.IsZero() || now.Sub(t.RevokedAt) > keep) {
			old = append(old, id)
		}
	}
	if len(old) == len(r.tokens) && len(old) > 0 {
		old = old[1:]
	}
	r.mu.RUnlock()
	if err := r.delete(ctx, old); err != nil {
		r.config.Logger.Warn("ended tokens could not be deleted", zap.Error(err))
	}
}

// Open reports whether callers without a token may do everything.
func (r *Registry) Open() bool {
	if !r.config.Open || r.first != nil {
		return false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.tokens) == 0
}

// Tokens returns the tokens that a caller manages, with the sessions if requested, oldest first.
func (r *Registry) Tokens(by access.Principal, sessions bool) []access.Token {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var all []access.Token
	for _, t := range r.tokens {
		if r.manages(by, t.Token) && (sessions || t.Kind != access.KindSession) {
			shown := t.Token
			if at := t.used.Load(); at != 0 {
				shown.LastUsedAt = time.UnixMilli(at)
			}
			all = append(all, shown)
		}
	}
	slices.SortFunc(all, func(a, b access.Token) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// manages reports whether a caller manages a token: one of its tenant, and one for all tenants only
// if it is such a caller itself.
func manages(by access.Principal, t access.Token) bool {
	return by.SeesTenant(t.Tenant) && (by.AllTenants || !t.AllTenants)
}

// manages is like the function manages, for existing tokens. Hold mu.
func (r *Registry) manages(by access.Principal, t access.Token) bool {
	return manages(by, t) && (by.AllTenants || !r.former(t))
}

// former reports whether an ended token belonged to a deleted tenant whose name a new tenant has
// now. Hold mu.
func (r *Registry) former(t access.Token) bool {
	return t.Ended(r.clock.Now()) && !t.AllTenants && t.Tenant != runtime.DefaultTenant && t.CreatedAt.Before(r.tenants[t.Tenant].CreatedAt)
}

// Tenants returns the tenants that a caller sees, ordered by name. They always include the default
// tenant.
func (r *Registry) Tenants(by access.Principal) []runtime.Tenant {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := maps.Clone(r.tenants)
	if _, put := all[runtime.DefaultTenant]; !put {
		all[runtime.DefaultTenant] = runtime.Tenant{Weight: runtime.DefaultWeight}
	}
	maps.DeleteFunc(all, func(id runtime.TenantID, _ runtime.Tenant) bool { return !by.SeesTenant(id) })
	return slices.SortedFunc(maps.Values(all), func(a, b runtime.Tenant) int { return cmp.Compare(a.ID.String(), b.ID.String()) })
}

// Tenant returns a tenant, and whether it exists.
func (r *Registry) Tenant(id runtime.TenantID) (runtime.Tenant, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t, ok := r.tenants[id]
	if !ok && id == runtime.DefaultTenant {
		return runtime.Tenant{Weight: runtime.DefaultWeight}, true
	}
	return t, ok
}
