package daemon

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Requests for one sandbox are served one at a time; those for another one don't wait.
func TestRequestsForOneSandboxAreSerialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := turns{busy: map[string]chan struct{}{}}
		end, err := all.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := all.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		var second func()
		go func() { second, _ = all.take(t.Context(), "a") }()
		synctest.Wait()
		if second != nil {
			t.Error("two work on the same sandbox")
		}
		why := errors.New("gone")
		gone, leave := context.WithCancelCause(t.Context())
		leave(why)
		if _, err := all.take(gone, "a"); !errors.Is(err, why) {
			t.Errorf("a cancelled request has its turn: got %v, want %v", err, why)
		}
		end()
		synctest.Wait()
		if second == nil {
			t.Fatal("no request is next")
		}
		second()
		if len(all.busy) > 0 {
			t.Errorf("left: %v", all.busy)
		}
	})
}
