package pool

import (
	"context"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/timing"
	"github.com/rockpool/rockpool/test/clock"
)

// TestStepsMoveNoClaim steps the wall clock before a server adopts a claim, and afterwards. The claim ends with
// its inactivity timeout. After a boot nobody knows what was a step, but no claim lasts for ever.
func TestStepsMoveNoClaim(t *testing.T) {
	const timeout = 10 * time.Minute
	boot := timing.ReadBoot()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		used := time.Now()
		expires := used.Add(timeout)
		claim := runtime.Claim{Epoch: 1, InactivityTimeout: timeout, ExpiresAt: expires.Round(0).Add(-step), Expires: boot.Moment(expires)}
		r := runtime.Runner{ID: runtime.NewRunnerID(), State: runtime.RunnerClaimed, Claim: claim}
		adopted := Adopted(r, boot).Claim.ExpiresAt
		for after, want := range map[time.Duration]int{timeout: 0, timeout + timeout/10 + time.Minute: 1} {
			now := clock.Step(used.Add(after), step)
			have := []Member{{ID: r.ID, State: r.State, ExpiresAt: adopted}}
			if n := len(Plan(now, Spec{}, have, 0, Failures{}).Stop); n != want {
				t.Errorf("a step of %v: %v after its last use, %d claims end, want %d", step, after, n, want)
			}
		}
		r.Claim.ExpiresAt, r.Claim.Expires = expires.Add(24*time.Hour), runtime.Moment{}
		if left := time.Until(Adopted(r, boot).Claim.ExpiresAt); left > timeout+timeout/10 {
			t.Errorf("a claim of %v lasts %v after a boot", timeout, left)
		}
	}
}

// TestStepsKeepTheOrderOfUses steps the wall clock between the uses of two pools.
func TestStepsKeepTheOrderOfUses(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		boot := time.Now()
		first, second := Pool{}, Pool{}
		for p, now := range map[*Pool]time.Time{&first: boot, &second: clock.Step(boot.Add(time.Second), step)} {
			p.options.Observe = func(runtime.Runner) {}
			o := &loop{pool: p, spawn: func(func(context.Context)) {}}
			o.mark(&entry{Runner: runtime.Runner{State: runtime.RunnerIdle}}, &waiter{}, now)
		}
		if first.LastUse().Compare(second.LastUse()) >= 0 {
			t.Errorf("after a step of %v the later use is the older one", step)
		}
	}
}

// TestStepsKeepPositions steps the wall clock after the positions were computed. They are computed again when they
// are old, and not before.
func TestStepsKeepPositions(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		var p positions
		now := time.Now()
		p.due.Store(new(now.Add(time.Second)))
		if !p.valid(clock.Step(now, step)) || p.valid(clock.Step(now.Add(2*time.Second), step)) {
			t.Errorf("a step of %v makes positions older or younger", step)
		}
	}
}
