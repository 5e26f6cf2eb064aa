package identity

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/store"
)

// memory is a Store in memory, which servers may share.
type memory struct {
	mu      sync.Mutex // guards what follows
	tokens  map[string]access.Token
	tenants map[runtime.TenantID]runtime.Tenant
	fails   error // of every change
	uses    int   // calls of UseTokens
}

func newMemory() *memory {
	return &memory{tokens: map[string]access.Token{}, tenants: map[runtime.TenantID]runtime.Tenant{}}
}

func (m *memory) Tokens(context.Context) ([]access.Token, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.tokens)), nil
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tokens)
}

func (m *memory) change(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == nil {
		f()
	}
	return m.fails
}

func (m *memory) PutTokens(_ context.Context, tokens ...access.Token) error {
	return m.change(func() {
		for _, t := range tokens {
			t.LastUsedAt = m.tokens[t.ID].LastUsedAt
			m.tokens[t.ID] = t
		}
	})
}

func (m *memory) UseTokens(_ context.Context, used map[string]time.Time) error {
	return m.change(func() {
		m.uses++
		for id, at := range used {
			t := m.tokens[id]
			t.LastUsedAt = at
			m.tokens[id] = t
		}
	})
}

func (m *memory) DeleteTokens(_ context.Context, ids []string) error {
	return m.change(func() {
		for _, id := range ids {
			delete(m.tokens, id)
		}
	})
}

func (m *memory) Tenants(context.Context) ([]runtime.Tenant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.tenants)), nil
}

func (m *memory) PutTenant(_ context.Context, t runtime.Tenant) error {
	return m.change(func() { m.tenants[t.ID] = t })
}

func (m *memory) DeleteTenant(_ context.Context, id runtime.TenantID) error {
	return m.change(func() { delete(m.tenants, id) })
}

var testKey = []byte("a key of thirty-two bytes, or so")

// load returns a server's registry over a store.
func load(t testing.TB, s Store, c Config) *Registry {
	t.Helper()
	c.Store, c.Logger = s, zap.NewNop()
	if c.Key == nil {
		c.Key = testKey
	}
	r := New(c)
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// newRegistry returns a registry that requires tokens, with the tenants physics and chemistry.
func newRegistry(t testing.TB) (*Registry, *memory) {
	t.Helper()
	m := newMemory()
	r := load(t, m, Config{FirstToken: "first"})
	for _, id := range []runtime.TenantID{"physics", "chemistry"} {
		if _, created, err := r.PutTenant(t.Context(), id, nil, nil); err != nil || !created {
			t.Fatal(created, err)
		}
	}
	return r, m
}

func (r *Registry) make(t testing.TB, in NewToken) (access.Token, string) {
	t.Helper()
	in.Kind, in.Name = access.KindToken, "test"
	made, text, err := r.CreateToken(t.Context(), access.Server(), in)
	if err != nil {
		t.Fatal(err)
	}
	return made, text
}

func wantCode(t testing.TB, what string, err error, code runtime.Code) {
	t.Helper()
	if err == nil || runtime.CodeOf(err) != code {
		t.Errorf("%s: error %v, want %s", what, err, code)
	}
}

// onDisk returns a registry over a database, and the directory with its files.
func onDisk(t testing.TB) (*Registry, string) {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Close()); err != nil {
			t.Error(err)
		}
	})
	return load(t, db, Config{FirstToken: "first-canary"}), dir
}
