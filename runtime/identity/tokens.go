package identity

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// Bounds of tokens and tenants.
const (
	MaxTokenLife = 10 * 365 * 24 * time.Hour
	maxTokens    = 10_000 // of a tenant, and of callers for all tenants; separately for sessions
	maxTenants   = 10_000
	maxNameBytes = 128
)

// A NewToken describes a token to make.
type NewToken struct {
	Kind       access.Kind // KindToken or KindSession
	Name       string      // for people
	Subject    string      // of a session: its person
	Tenant     runtime.TenantID
	AllTenants bool
	Role       access.Role
	Life       time.Duration // 0 means unlimited
}

// CreateToken makes a token, and returns its text, which isn't stored. A caller can't give a token
// more than it has itself, and its own token must still be valid. The first token of an open server
// must be an administrator's for all tenants; afterwards the server requires tokens.
func (r *Registry) CreateToken(ctx context.Context, by access.Principal, in NewToken) (access.Token, string, error) {
	if err := in.validate(); err != nil {
		return access.Token{}, "", err
	}
	made := access.Token{Kind: in.Kind, Name: in.Name, Subject: in.Subject, Tenant: in.Tenant, AllTenants: in.AllTenants, Role: in.Role, CreatedAt: r.clock.Now(), CreatedBy: by.ID}
	if in.Life > 0 {
		made.ExpiresAt = made.CreatedAt.Add(in.Life)
	}
	if !manages(by, made) {
		if in.AllTenants {
			return access.Token{}, "", runtime.Errorf(runtime.CodeForbidden, "only a token for all tenants may make one for all tenants")
		}
		return access.Token{}, "", unknownTenant(in.Tenant)
	}
	// Neither the caller's token nor the tenant may end before the new token is stored.
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.known(by); err != nil {
		return access.Token{}, "", err
	}
	if _, there := r.Tenant(in.Tenant); !there {
		return access.Token{}, "", unknownTenant(in.Tenant)
	}
	if r.Open() && (in.Role != access.Admin || !in.AllTenants || in.Life > 0) {
		return access.Token{}, "", runtime.Invalid("role", "must be ADMIN, for all tenants and without an expiry, for the first token, since the server then requires tokens. Make that one first: `rockpool token create admin --role ADMIN`")
	}
	if in.Kind == access.KindSession {
		if err := r.endOldest(ctx, in.Subject); err != nil {
			return access.Token{}, "", err
		}
	}
	switch live, all := r.count(made); {
	case in.Kind == access.KindSession && live >= maxTokens:
		return access.Token{}, "", runtime.Errorf(runtime.CodeLimitExceeded, "the tenant has %d sessions, which is the limit: revoke some, or wait until they end", live)
	case in.Kind != access.KindSession && (live >= maxTokens || all >= 2*maxTokens):
		return access.Token{}, "", runtime.Errorf(runtime.CodeLimitExceeded, "the tenant has %d tokens, including those that ended in the last 30 days: revoke unused ones; ended ones are deleted after 30 days", all)
	}
	var text string
	made.ID, text, made.Hash = newSecret()
	if err := r.config.Store.PutTokens(ctx, made); err != nil {
		return access.Token{}, "", err
	}
	wasOpen := r.Open()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[made.ID] = newLive(made)
	if wasOpen {
		r.config.Logger.Info("the first token was made: every caller needs one from now on")
	}
	// Calls that were made without a token end now.
	r.nobody.end(errClosed)
	return made, text, nil
}

// count returns how many tokens like with, or sessions like it, a tenant has: valid ones, and all.
func (r *Registry) count(with access.Token) (live, all int) {
	now := r.clock.Now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, t := range r.tokens {
		if t.Kind != with.Kind || t.Tenant != with.Tenant || t.AllTenants != with.AllTenants || r.former(t.Token) {
			continue
		}
		if all++; !t.Ended(now) {
			live++
		}
	}
	return live, all
}

// validate checks the input, except for whether its tenant exists.
func (in NewToken) validate() error {
	if err := validateName("name", in.Name); err != nil {
		return err
	}
	if _, err := access.ParseRole("role", string(in.Role)); err != nil {
		return err
	}
	if in.AllTenants && in.Role == access.Client {
		return runtime.Invalid("tenant", "must be given for the role CLIENT, since a client's objects belong to one tenant")
	}
	if in.AllTenants && in.Tenant != runtime.DefaultTenant {
		return runtime.Invalid("tenant", "can't be combined with a token for all tenants")
	}
	return nil
}

// validateName checks a name that is for people. Errors name field.
func validateName(field, name string) error {
	if name == "" || len(name) > maxNameBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return runtime.Invalid(field, "must be 1 to %d bytes of text without control characters", maxNameBytes)
	}
	return nil
}

// PersonName returns a valid name for the session of a person: the provider's name for it, or else
// subject, without characters that names can't have.
func PersonName(name, subject string) string {
	for _, text := range []string{name, subject} {
		text = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return -1
			}
			return r
		}, strings.ToValidUTF8(text, ""))
		for len(text) > maxNameBytes {
			_, size := utf8.DecodeLastRuneInString(text)
			text = text[:len(text)-size]
		}
		if text != "" {
			return text
		}
	}
	return "somebody"
}

// unknownTenant returns INVALID_INPUT for a tenant that doesn't exist, or that the caller may not
// use.
func unknownTenant(id runtime.TenantID) error {
	return runtime.Invalid("tenant", "tenant %s doesn't exist: create it with putTenant", id)
}

// known returns an error if the caller's token has ended. Hold changing, so that no token is
// revoked meanwhile.
func (r *Registry) known(by access.Principal) error {
	if by.Kind == access.KindServer {
		return nil
	}
	_, err := r.ByID(by.ID)
	return err
}

// A Revocation is the result of RevokeToken.
type Revocation struct {
	Token   *access.Token // nil means not in the registry
	Revoked bool          // false means it had ended before
	Made    int           // number of tokens made with it that were revoked too
}

// RevokeToken revokes a token, and ends everything that its holders are doing. With alsoMade it
// also revokes, atomically, the tokens that it made, those that these made, and so on. That works
// even if the token had ended, was never in the registry, or can't be revoked (the token from a file).
// It returns INVALID_INPUT for a token that the caller doesn't manage, unless alsoMade is set and
// the caller manages tokens that it made.
func (r *Registry) RevokeToken(ctx context.Context, by access.Principal, id string, alsoMade bool) (Revocation, error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	if err := r.known(by); err != nil {
		return Revocation{}, err
	}
	var done Revocation
	r.mu.RLock()
	token := r.tokens[id]
	// To this caller, a token that it doesn't manage doesn't exist.
	if token != nil && !r.manages(by, token.Token) {
		token = nil
	}
	r.mu.RUnlock()
	var made []*liveToken
	if alsoMade {
		made = r.madeWith(by, id)
	}
	if token == nil && len(made) == 0 {
		return Revocation{}, runtime.Invalid("id", "token %s doesn't exist", id)
	}
	all := made
	if token != nil {
		all = append(all, token)
	}
	revoked, err := r.revoke(ctx, all)
	if err != nil {
		return Revocation{}, err
	}
	done.Made = len(revoked)
	if token != nil {
		done.Token = &token.Token
		if now, ended := revoked[id]; ended {
			done.Token, done.Revoked = &now, true
			// The token itself doesn't count as made with it.
			done.Made--
		}
	}
	return done, nil
}

// madeWith returns the tokens that a caller manages and that were made with a token, directly or
// indirectly.
func (r *Registry) madeWith(by access.Principal, id string) []*liveToken {
	r.mu.RLock()
	defer r.mu.RUnlock()
	byMaker := map[string][]*liveToken{}
	for _, t := range r.tokens {
		if t.CreatedBy != "" && r.manages(by, t.Token) {
			byMaker[t.CreatedBy] = append(byMaker[t.CreatedBy], t)
		}
	}
	all := byMaker[id]
	// The slice grows while it is read: the tokens that each one made follow.
	for i := 0; i < len(all); i++ {
		all = append(all, byMaker[all[i].ID]...)
	}
	return all
}

// revoke revokes those of tokens that haven't ended, and returns them by id. Its caller holds changing.
func (r *Registry) revoke(ctx context.Context, tokens []*liveToken) (map[string]access.Token, error) {
	now := r.clock.Now()
	var ending []*liveToken
	var stored []access.Token
	revoked := map[string]access.Token{}
	for _, t := range tokens {
		if t.Ended(now) {
			continue
		}
		next := t.Token
		next.RevokedAt = now
		ending, stored, revoked[t.ID] = append(ending, t), append(stored, next), next
	}
	if len(ending) == 0 {
		return nil, nil
	}
	if err := r.config.Store.PutTokens(ctx, stored...); err != nil {
		return nil, err
	}
	r.mu.Lock()
	// Memory changes before the contexts end, so that a caller whose call ends can't use the
	// token again.
	for i, t := range ending {
		next := newLive(stored[i])
		next.used.Store(t.used.Load())
		r.tokens[t.ID] = next
	}
	r.mu.Unlock()
	for _, t := range ending {
		t.end(errRevoked)
	}
	return revoked, nil
}

// PutTenant creates a tenant, or changes the settings that aren't nil.
func (r *Registry) PutTenant(ctx context.Context, id runtime.TenantID, weight *int, quotas *runtime.Quotas) (t runtime.Tenant, created bool, err error) {
	r.changing.Lock()
	defer r.changing.Unlock()
	t, there := r.Tenant(id)
	if !there {
		t = runtime.Tenant{ID: id, Weight: runtime.DefaultWeight}
	}
	if weight != nil {
		t.Weight = *weight
	}
	if quotas != nil {
		t.Quotas = *quotas
	}
	if err := cmp.Or(runtime.Between("weight", int64(t.Weight), 1, runtime.MaxWeight, "turns"), t.Quotas.Validate("quotas.")); err != nil {
		return t, false, err
	}
	if !there {
		r.mu.RLock()
		full := len(r.tenants) >= maxTenants
		r.mu.RUnlock()
		if full {
			return t, false, runtime.Errorf(runtime.CodeLimitExceeded, "there are already %d tenants, which is the limit: delete some", maxTenants)
		}
		if r.config.Free != nil { // a deleted tenant of this ID must not leave objects to the new one
			if err := r.config.Free(ctx, id); err != nil {
				return t, false, err
			}
		}
	}
	if t.CreatedAt.IsZero() {
		t.CreatedAt = r.clock.Now()
	}
	if err := r.config.Store.PutTenant(ctx, t); err != nil {
		return t, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenants[t.ID] = t
	r.setQuotas(t)
	return t, !there, nil
}

// DeleteTenant deletes a tenant and revokes its tokens. It returns false if there is none. The
// default tenant can't be deleted.
func (r *Registry) DeleteTenant(ctx context.Context, id runtime.TenantID) (bool, error) {
	if id == runtime.DefaultTenant {
		return false, runtime.Invalid("id", "the default tenant can't be deleted")
	}
	r.changing.Lock() // until the end, so that no token is made for it meanwhile
	defer r.changing.Unlock()
	if _, there := r.Tenant(id); !there {
		return false, nil
	}
	if _, err := r.revoke(ctx, r.tokensOf(id)); err != nil {
		return false, err
	}
	// If this fails, the tenant stays, but its tokens are revoked.
	if err := r.config.Store.DeleteTenant(ctx, id); err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tenants, id)
	if r.config.Quotas != nil {
		r.config.Quotas.Remove(id)
	}
	return true, nil
}

// tokensOf returns the tokens of one tenant, including sessions.
func (r *Registry) tokensOf(id runtime.TenantID) []*liveToken {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var all []*liveToken
	for _, t := range r.tokens {
		if t.Tenant == id && !t.AllTenants {
			all = append(all, t)
		}
	}
	return all
}

const maxSessions = 20

// endOldest makes room for one more session of a person. It deletes ended sessions first, then the
// oldest ones. A session that made tokens is ended but not deleted: see RevokeToken. Its caller
// holds changing.
func (r *Registry) endOldest(ctx context.Context, subject string) error {
	now := r.clock.Now()
	var all, ending []*liveToken
	var deleting []string
	r.mu.RLock()
	makers := r.makers()
	for _, t := range r.tokens {
		if t.Kind == access.KindSession && t.Subject == subject {
			all = append(all, t)
		}
	}
	r.mu.RUnlock()
	// Ended sessions come first, then the oldest.
	slices.SortFunc(all, func(a, b *liveToken) int {
		if aEnded, bEnded := a.Ended(now), b.Ended(now); aEnded != bEnded {
			if aEnded {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	for _, t := range all[:max(0, len(all)-maxSessions+1)] {
		if makers[t.ID] {
			ending = append(ending, t)
		} else {
			deleting = append(deleting, t.ID)
		}
	}
	if _, err := r.revoke(ctx, ending); err != nil {
		return err
	}
	return r.delete(ctx, deleting)
}

// makers returns the ids of the tokens that made others. The caller holds mu.
func (r *Registry) makers() map[string]bool {
	makers := map[string]bool{}
	for _, t := range r.tokens {
		makers[t.CreatedBy] = true
	}
	return makers
}

// delete deletes tokens, which ends them. Its caller holds changing.
func (r *Registry) delete(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := r.config.Store.DeleteTokens(ctx, ids); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.tokens[id].end(errRevoked)
		delete(r.tokens, id)
	}
	return nil
}
