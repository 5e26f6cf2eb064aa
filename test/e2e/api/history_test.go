package api

import (
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// TestE2EClaimsAreCounted: claims are counted, separately those that found an idle runner. The
// lists of a pool's history have the same length.
func TestE2EClaimsAreCounted(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "counted", "poolSize": 0, "resources": object{"memoryMiB": 64, "cpuMHz": 500}})
	b.Claim(t, "counted")
	var out struct {
		Environment struct {
			ClaimStats struct {
				Claimed, Warm, Failed int
				Durations             struct {
					Count        int
					MinMs, MaxMs float64
				}
			}
			PoolHistory struct {
				StepSeconds                                    int
				Idle, Claimed, Starting, Waiting, Claims, Warm []int
			}
		}
	}
	b.Call(t, `{ environment(id: "counted") {
		claimStats { claimed warm failed durations { count minMs maxMs } }
		poolHistory { stepSeconds until idle claimed starting waiting claims warm } } }`, nil, &out)
	if s := out.Environment.ClaimStats; s.Claimed != 1 || s.Warm != 0 || s.Failed != 0 || s.Durations.Count != 1 || s.Durations.MinMs < 1 || s.Durations.MaxMs < s.Durations.MinMs {
		t.Errorf("%+v", s)
	}
	h := out.Environment.PoolHistory
	if h.StepSeconds != 10 {
		t.Errorf("%+v", h)
	}
	for _, list := range [][]int{h.Idle, h.Claimed, h.Starting, h.Waiting, h.Claims, h.Warm} {
		if list == nil || len(list) != len(h.Idle) {
			t.Errorf("%+v", h)
		}
	}
}
