package turns

import (
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime"
)

// A gate whose limit is raised admits those that wait. One whose limit is lowered admits nobody
// until enough have left.
func TestLimitOfAGateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, inside := NewGate(1), 0
		var leaves []func()
		for range 5 {
			go func() {
				leave, err := gate.Pass(runtime.Environment{}, 0).Enter(t.Context())
				if err != nil {
					t.Error(err)
				}
				inside++
				leaves = append(leaves, leave)
			}()
			synctest.Wait()
		}
		for i, step := range []struct{ limit, leave, want int }{{1, 0, 1}, {3, 0, 3}, {1, 0, 3}, {1, 2, 3}, {1, 1, 4}, {9, 0, 5}} {
			gate.SetLimit(step.limit)
			for range step.leave {
				leaves[0]()
				leaves = leaves[1:]
			}
			if synctest.Wait(); inside != step.want {
				t.Errorf("step %d: %d were admitted, want %d", i, inside, step.want)
			}
		}
		for len(leaves) > 0 {
			leaves[0]()
			leaves = leaves[1:]
		}
	})
}
