package pool

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestAbandonedClaimReleasesItsRunner abandons a claim whose answer is on its way.
func TestAbandonedClaimReleasesItsRunner(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		for _, of := range []runtime.Claim{{}, {Key: "k"}, {Holder: "h"}} {
			held := 0
			if of.Key+of.Holder != "" {
				held = 1
			}
			w := &waiter{claim: Claim{Claim: of}, result: make(chan claimResult, 1)}
			if err := b.send(t.Context(), func(o *loop) { o.enqueue(w) }); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			if len(w.result) != 1 {
				t.Fatal("not answered")
			}
			if err := b.send(t.Context(), func(o *loop) { o.abandon(w, false) }); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			if got := b.Status().Claimed; got != held {
				t.Errorf("%+v: %d claimed, want %d", of, got, held)
			}
			if held == 1 {
				if _, err := b.Release(t.Context(), (<-w.result).runner.ID); err != nil {
					t.Error(err)
				}
				settle(time.Second)
			}
		}
	})
}
