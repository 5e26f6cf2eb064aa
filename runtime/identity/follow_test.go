package identity

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// unreadable is a store that is unreadable for a while.
type unreadable struct {
	*memory
	away *atomic.Bool
}

func (u unreadable) Tokens(ctx context.Context) ([]access.Token, error) {
	if u.away.Load() {
		return nil, errors.New("away")
	}
	return u.memory.Tokens(ctx)
}

// TestFollowerReadsRevocations checks that a token revoked elsewhere is refused within 5 s, that
// its requests end, and that new tokens are known.
func TestFollowerReadsRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader, m := newRegistry(t)
		var away atomic.Bool
		standby := load(t, unreadable{m, &away}, Config{FirstToken: "first"})
		ctx, stop := context.WithCancel(t.Context())
		leads, ended := make(chan struct{}), make(chan error, 2)
		go func() { ended <- standby.Follow(ctx, leads) }()
		settle := func() { time.Sleep(5 * time.Second); synctest.Wait() }

		made, text := leader.make(t, NewToken{Role: access.Observer, AllTenants: true})
		settle()
		known, err := standby.Authenticate(text)
		if err != nil {
			t.Fatal("a new token isn't known:", err)
		}
		bound, release := known.Bind(t.Context())
		defer release()
		away.Store(true)
		if _, err := leader.RevokeToken(t.Context(), access.Server(), made.ID, false); err != nil {
			t.Fatal(err)
		}
		settle()
		if bound.Err() != nil {
			t.Error("what can't be read changed something")
		}
		away.Store(false)
		settle()
		_, err = standby.Authenticate(text)
		wantCode(t, "a revoked token", err, runtime.CodeUnauthenticated)
		wantCode(t, "what its holder does", context.Cause(bound), runtime.CodeUnauthenticated)

		close(leads)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		go func() { ended <- standby.Follow(ctx, nil) }()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
}
