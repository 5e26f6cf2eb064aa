package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestHistoryIsBounded(t *testing.T) {
	h := &history{}
	began := time.Now()
	for i := range 2 * keptSamples {
		h.claim(time.Millisecond, i%2 == 0, nil)
		h.sample(began.Add(time.Duration(i)*runtime.SampleEvery), runtime.PoolStatus{Idle: i})
	}
	h.claim(0, true, errors.New("none"))
	if len(h.samples) != keptSamples || cap(h.samples) > 2*keptSamples {
		t.Errorf("%d samples in room for %d", len(h.samples), cap(h.samples))
	}
	first, last := h.samples[0], h.samples[keptSamples-1]
	if first.Idle != keptSamples || last.Idle != 2*keptSamples-1 || last.At.Sub(first.At) != time.Hour-runtime.SampleEvery {
		t.Errorf("from %+v to %+v", first, last)
	}
	if first.Claims != 1 || first.Warm != 1 || last.Claims != 1 || last.Warm != 0 {
		t.Errorf("claims of %+v and %+v", first, last)
	}
	if h.claimed != 2*int64(keptSamples) || h.warm != int64(keptSamples) || h.failed != 1 {
		t.Errorf("%d claimed, %d warm, %d failed", h.claimed, h.warm, h.failed)
	}
}

// TestClaimsAreCounted checks that a claim is warm if a runner was idle at its arrival, however
// long its mark took.
func TestClaimsAreCounted(t *testing.T) {
	run(t, 1, func(t *testing.T, b *bed) {
		b.want(t, 1, 0)
		b.claim(t, Claim{})
		if _, err := b.Claim(t.Context(), Claim{}); runtime.CodeOf(err) != runtime.CodeNoRunnerAvailable {
			t.Errorf("the second claim: got %v, want NO_RUNNER_AVAILABLE", err)
		}
		b.claim(t, Claim{WaitFor: time.Minute})
		s := b.ClaimStats()
		if s.Claimed != 2 || s.Warm != 1 || s.Failed != 1 || s.Took.Count != 2 || s.Took.Min > time.Millisecond || s.Took.Max < 5*time.Millisecond {
			t.Errorf("%+v", s)
		}
		b.want(t, 1, 2)
		b.Sample(time.Now())
		if h := b.History(); len(h) != 1 || h[0].Idle != 1 || h[0].Claimed != 2 || h[0].Claims != 2 || h[0].Warm != 1 {
			t.Errorf("%+v", h)
		}
	})
}
