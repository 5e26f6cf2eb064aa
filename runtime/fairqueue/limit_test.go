package fairqueue

import (
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime"
)

// A gate whose limit is raised admits those that wait. One whose limit is lowered admits nobody
// until enough have left.
func TestLimitOfAGateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, left := NewLimiter(1), 0
		leaves := make(chan func(), 5) // of those that are admitted
		for range 5 {
			go func() {
				leave, err := gate.Waiter("", "", 0).Enter(t.Context())
				if err != nil {
					t.Error(err)
				}
				leaves <- leave
			}()
			synctest.Wait()
		}
		for i, step := range []struct{ limit, leave, want int }{{1, 0, 1}, {3, 0, 3}, {1, 0, 3}, {1, 2, 3}, {1, 1, 4}, {9, 0, 5}} {
			gate.SetLimit(step.limit)
			for range step.leave {
				(<-leaves)()
				left++
			}
			if synctest.Wait(); left+len(leaves) != step.want {
				t.Errorf("step %d: %d were admitted, want %d", i, left+len(leaves), step.want)
			}
		}
		for len(leaves) > 0 {
			(<-leaves)()
		}
	})
}

// A tenant gets half of a shared gate, however many of its passes wait and never leave. Others still
// get theirs. A slot that is left is for all.
func TestTenantsShareAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, inside := NewSharedLimiter(8), map[string]chan func(){} // leave functions of those that are inside
		for _, step := range []struct {
			tenant string
			leaves string // a tenant of which one leaves before
			want   int    // how many of ten are inside
		}{{"a", "", 4}, {"b", "", 2}, {"c", "", 1}, {"d", "", 1}, {"e", "", 0}, {"e", "a", 1}} {
			if step.leaves != "" {
				(<-inside[step.leaves])()
			} else {
				entered := make(chan func(), 10)
				inside[step.tenant] = entered
				for range 10 {
					go func() {
						if leave, err := gate.Waiter(runtime.TenantID(step.tenant), "", 0).Enter(t.Context()); err == nil {
							entered <- leave
						}
					}()
					synctest.Wait()
				}
			}
			if synctest.Wait(); len(inside[step.tenant]) != step.want {
				t.Errorf("%s: %d are inside, want %d", step.tenant, len(inside[step.tenant]), step.want)
			}
		}
		if len(gate.has) != 5 || gate.free != 0 {
			t.Errorf("%v, %d are free", gate.has, gate.free)
		}
	})
}
