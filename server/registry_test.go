package server

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/engine"
	"github.com/rockpool/rockpool/runtime/identity"
	"github.com/rockpool/rockpool/runtime/store"
	"github.com/rockpool/rockpool/test/clustertest"
	"github.com/rockpool/rockpool/test/postgrestest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestFollowersRefuseRevokedTokens: they respond to health and metrics themselves.
func TestFollowersRefuseRevokedTokens(t *testing.T) {
	postgres := postgrestest.Start(t)
	open := func() (*store.Store, *identity.Registry) {
		t.Helper()
		db, err := store.OpenShared(t.Context(), postgres.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db, identity.New(identity.Config{Store: db, FirstToken: "first", Key: make([]byte, 32), Logger: zap.NewNop()})
	}
	db, leader := open()
	if err := db.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	made, text, err := leader.CreateToken(t.Context(), access.Server(), identity.NewToken{Kind: access.KindToken, Name: "prometheus", Role: access.Observer, AllTenants: true})
	if err != nil {
		t.Fatal(err)
	}
	other, standby := open()
	fake := clustertest.NewFake()
	s := Server{store: other, callers: callers{registry: standby}, Engine: engine.New(fake, other, engine.Config{Dir: t.TempDir(), Logger: zap.NewNop()})}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.runRegistry(ctx) }()
	known := func() bool { _, err := standby.Authenticate(text); return err == nil }
	wait.For(t, "the token is known", known)
	if _, err := leader.RevokeToken(t.Context(), access.Server(), made.ID, false); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the revoked token is refused", func() bool { return !known() })
	stop()
	if err := errors.Join(<-ended, fake.Close()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}
