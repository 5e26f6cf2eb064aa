package pool

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestAnsweredButAbandoned: the answer was on its way when the claimer left.
func TestAnsweredButAbandoned(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		settle(time.Second)
		for key, held := range map[string]int{"": 0, "k": 1} {
			w := &waiter{claim: Claim{Claim: runtime.Claim{Key: key}}, result: make(chan claimed, 1)}
			if err := b.tell(t.Context(), func(o *owner) { o.enqueue(w) }); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			if len(w.result) != 1 {
				t.Fatal("not answered")
			}
			if err := b.tell(t.Context(), func(o *owner) { o.abandon(w, false) }); err != nil {
				t.Fatal(err)
			}
			settle(time.Second)
			if got := b.Status().Claimed; got != held {
				t.Errorf("key %q: %d claimed, want %d", key, got, held)
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
