package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Spec is what a pool is to be.
type Spec struct {
	Size       int  // idle runners to keep
	Revision   int  // runners of an earlier one are replaced when they are idle
	Deleted    bool // no idle runners any more
	EndClaimed bool // with Deleted: no claimed ones either
}

func (s Spec) current(m Member) bool { return m.Revision >= s.Revision && !m.Foreign }

// A Member is what Plan has to know of a runner.
type Member struct {
	ID        runtime.RunnerID
	State     runtime.RunnerState
	Revision  int
	Foreign   bool      // of a tenant that the environment isn't of now: replaced when it is idle
	ExpiresAt time.Time // of a claim that nobody uses now; zero: never
}

// Failures say how often starts failed since the last one that didn't.
type Failures struct {
	Count   int
	RetryAt time.Time // no start before this
	Reason  string    // why the last start failed; Plan doesn't use it
}

// A Stop is a runner to be removed, and why.
type Stop struct {
	ID     runtime.RunnerID
	Reason runtime.GoneReason
}

// Actions are what has to be done now.
type Actions struct {
	Start  int       // runners of the current revision
	Stop   []Stop    // in no particular order
	WakeAt time.Time // when to plan again if nothing happens before; zero: never
}

// Plan decides what brings a pool from what it has to what it is to be.
// Starting up, growing, shrinking, replacing a revision, refilling, serving
// claims that wait on an empty pool, expiry and deletion are all this one
// function. It is pure: the same arguments give the same actions, and after
// the actions have taken effect it asks for none.
//
// What is STOPPING counts neither as there nor as missing: its place is the
// cluster's to know. What is CLAIMING isn't to be refilled yet: a replacement that
// was begun before the claim is answered would take the CPUs from it.
func Plan(now time.Time, spec Spec, have []Member, waiting int, failures Failures) Actions {
	var actions Actions
	fresh, starting, claiming := 0, 0, 0
	for _, m := range have {
		switch m.State {
		case runtime.RunnerStarting, runtime.RunnerIdle:
			switch {
			case spec.Deleted:
				actions.stop(m, runtime.GoneEnvironmentDeleted)
			case !spec.current(m):
				actions.stop(m, runtime.GoneReplaced)
			default:
				fresh++
				if m.State == runtime.RunnerStarting {
					starting++
				}
			}
		case runtime.RunnerClaiming:
			claiming++
		case runtime.RunnerClaimed:
			switch {
			case spec.Deleted && spec.EndClaimed:
				actions.stop(m, runtime.GoneEnvironmentDeleted)
			case m.ExpiresAt.IsZero():
			case !now.Before(m.ExpiresAt):
				actions.stop(m, runtime.GoneInactivity)
			default:
				actions.wake(m.ExpiresAt)
			}
		}
	}
	if spec.Deleted {
		return actions
	}
	want := spec.Size + waiting
	if surplus := fresh - want; surplus > 0 {
		for _, m := range leastUseful(spec, have)[:surplus] {
			actions.stop(m, runtime.GoneShrunk)
		}
	}
	missing := max(want-fresh-claiming, waiting-fresh)
	switch {
	case missing <= 0:
	case failures.Count == 0:
		actions.Start = min(missing, max(maxStarting-starting, 0))
	case now.Before(failures.RetryAt):
		actions.wake(failures.RetryAt)
	case starting == 0:
		actions.Start = 1 // one tries it; the others follow when it is there
	}
	return actions
}

// leastUseful returns the members of the current revision that nobody has, those
// to lose first at first: what isn't ready before what is, the youngest first.
func leastUseful(spec Spec, have []Member) []Member {
	var members []Member
	for _, m := range have {
		if (m.State == runtime.RunnerStarting || m.State == runtime.RunnerIdle) && spec.current(m) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b Member) int {
		if a.State != b.State {
			if a.State == runtime.RunnerStarting {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return members
}

func (a *Actions) stop(m Member, reason runtime.GoneReason) {
	a.Stop = append(a.Stop, Stop{ID: m.ID, Reason: reason})
}

func (a *Actions) wake(at time.Time) {
	a.WakeAt = earlier(a.WakeAt, at)
}

// maxStarting bounds how many runners start at once: a thousand waiting claims
// get theirs in turn.
const maxStarting = 50

// How long starts pause after failures.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// failed returns the failures after one more at now. Starts that failed
// together count as one.
func (f Failures) failed(now time.Time, reason string) Failures {
	f.Reason = reason
	if f.Count > 0 && now.Before(f.RetryAt) {
		return f
	}
	pause := min(firstPause<<min(f.Count, 10), lastPause)
	f.Count++
	f.RetryAt = now.Add(pause)
	return f
}
