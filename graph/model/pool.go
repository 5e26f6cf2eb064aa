package model

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A PoolHistory has one list for each number of its samples. With one object per sample, the field
// names would be most of the answer.
type PoolHistory struct {
	StepSeconds                                    int
	Until                                          *time.Time
	Idle, Claimed, Starting, Waiting, Claims, Warm []int
}

// NewPoolHistory converts samples, oldest first.
func NewPoolHistory(samples []runtime.PoolSample) PoolHistory {
	h := PoolHistory{StepSeconds: int(runtime.SampleEvery / time.Second)}
	for _, s := range samples {
		h.Until = &s.At
		h.Idle, h.Claimed, h.Starting = append(h.Idle, s.Idle), append(h.Claimed, s.Claimed), append(h.Starting, s.Starting)
		h.Waiting, h.Claims, h.Warm = append(h.Waiting, s.Waiting), append(h.Claims, s.Claims), append(h.Warm, s.Warm)
	}
	return h
}
