package pool

import (
	"cmp"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Spec is the desired state of a pool.
type Spec struct {
	Size       int  // idle runners to keep
	Revision   int  // idle runners of an earlier revision are replaced
	Deleted    bool // remove all idle runners
	EndClaimed bool // with Deleted: remove claimed runners too
}

// current reports whether m has the present revision and tenant, so that it needs no replacement.
func (s Spec) current(m Member) bool { return m.Revision >= s.Revision && !m.Foreign }

// A Member is what Plan needs to know about a runner.
type Member struct {
	ID        runtime.RunnerID
	State     runtime.RunnerState
	Revision  int
	Foreign   bool      // belongs to a former tenant of the environment: replaced when idle
	ExpiresAt time.Time // of an unused claim; the zero time means never
}

// Failures count the failed starts since the last successful one.
type Failures struct {
	Count   int
	RetryAt time.Time // no start before this
	Reason  string    // why the last start failed; Plan doesn't use it
}

// A Stop is a runner to remove, and the reason.
type Stop struct {
	ID     runtime.RunnerID
	Reason runtime.GoneReason
}

// Actions are what to do now.
type Actions struct {
	Start  int       // runners of the current revision
	Stop   []Stop    // in no particular order
	WakeAt time.Time // when to plan again if nothing changes before; the zero time means never
}

// Plan decides what brings a pool from its present to its desired state. It covers starting up, growing,
// shrinking, replacing a revision, refilling, serving claims that wait on an empty pool, expiry, and
// deletion. It is pure: equal arguments give equal actions, and once these have taken effect it
// returns none.
//
// A STOPPING runner counts neither as present nor as missing: only the cluster knows about its room.
// A CLAIMING runner isn't refilled yet: a replacement that starts before the claim is answered would
// take CPU time from it.
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
	// Each waiting claim takes a runner of its own, in addition to the idle ones to keep.
	want := spec.Size + waiting
	if surplus := fresh - want; surplus > 0 {
		for _, m := range leastUseful(spec, have)[:surplus] {
			actions.stop(m, runtime.GoneShrunk)
		}
	}
	// A runner that is being claimed delays its refill, but no start that a waiting claim needs.
	missing := max(want-fresh-claiming, waiting-fresh)
	switch {
	case missing <= 0:
	case failures.Count == 0:
		actions.Start = min(missing, max(maxStarting-starting, 0))
	case now.Before(failures.RetryAt):
		actions.wake(failures.RetryAt)
	case starting == 0:
		actions.Start = 1 // one probe; the others follow when it is ready
	}
	return actions
}

// leastUseful returns the unclaimed members of the current revision in the order in which to remove
// them: STARTING before IDLE, and youngest first.
func leastUseful(spec Spec, have []Member) []Member {
	var members []Member
	for _, m := range have {
		if (m.State == runtime.RunnerStarting || m.State == runtime.RunnerIdle) && spec.current(m) {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b Member) int {
		return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(b.ID, a.ID)) // STARTING is after IDLE in the alphabet
	})
	return members
}

func (a *Actions) stop(m Member, reason runtime.GoneReason) {
	a.Stop = append(a.Stop, Stop{ID: m.ID, Reason: reason})
}

// wake makes the next plan happen at that time, or earlier.
func (a *Actions) wake(at time.Time) {
	a.WakeAt = earlier(a.WakeAt, at)
}

// maxStarting bounds concurrent starts of a pool. A thousand waiting claims are served in turn.
const maxStarting = 50

// Pauses of starts after failures.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)

// failed returns the failures after one more at now. Starts that failed before RetryAt count as one.
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

type goal struct {
	env        runtime.Environment
	making     runtime.Environment // revision that runners are made from now; see resolve
	image      runtime.ImageStatus // of env's image
	awaiting   bool                // no runner can be made until the image is available
	deleted    bool
	endClaimed bool
}

// set changes the environment and revokes a delete, unless env is older.
func (g *goal) set(env runtime.Environment) {
	if g.deleted || env.Revision >= g.env.Revision {
		g.env, g.deleted, g.endClaimed = env, false, false
	}
}

// delete makes an empty pool the goal. It stays so until set is called.
func (g *goal) delete(endClaimed bool) {
	g.deleted = true
	g.endClaimed = g.endClaimed || endClaimed
}

// resolve determines the revision that runners are made from now. While the cluster doesn't have the
// environment's image, that is the previous revision, with the present pool size and tenant. Without
// a previous revision no runner can be made.
func (g *goal) resolve(options Options) {
	g.making, g.image, g.awaiting = g.env, options.image(g.env), false
	g.making.Previous = nil
	if !options.pulls(g.env) || g.image.State == runtime.ImageReady {
		return
	}
	if g.env.Previous == nil {
		g.awaiting = true
		return
	}
	g.making = *g.env.Previous
	g.making.PoolSize, g.making.Tenant = g.env.PoolSize, g.env.Tenant
}

func (g *goal) spec() Spec {
	return Spec{Size: g.env.PoolSize, Revision: g.making.RunnerRevision, Deleted: g.deleted, EndClaimed: g.endClaimed}
}

func (g *goal) current(env runtime.Environment) bool {
	return env.Revision >= g.making.RunnerRevision && !g.foreign(env)
}

// foreign reports whether runners made from env belong to another tenant: the environment was that
// tenant's, or was deleted and created again.
func (g *goal) foreign(env runtime.Environment) bool { return env.Tenant != g.making.Tenant }

func (g *goal) errDeleted() error {
	return runtime.Errorf(runtime.CodeEnvironmentNotFound, "environment %s was deleted", g.env.ID)
}

func (g *goal) reasonAwaiting() string {
	return "the environment's image is not available yet: " + cmp.Or(g.image.Reason, "it is being pulled")
}

// pulls reports whether the cluster pulls an environment's image itself.
func (o Options) pulls(env runtime.Environment) bool { return env.Pin.Digest != "" && o.Image != nil }

func (o Options) image(env runtime.Environment) runtime.ImageStatus {
	if !o.pulls(env) {
		return runtime.ImageStatus{}
	}
	return o.Image(env.Pin)
}
