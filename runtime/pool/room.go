package pool

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/syncs"
)

const (
	// lackingFor is how long claims lack room before idle runners give way: a runner that is being
	// removed may suffice.
	lackingFor = 500 * time.Millisecond
	// usedWithin is how long the cluster has to use the room that was made, before more is made.
	usedWithin = 2 * time.Second
	// lookingEvery is the longest interval between looks while claims lack room.
	lookingEvery = 10 * time.Second
)

// A RoomMaker makes idle runners give way to waiting claims of other environments.
type RoomMaker struct {
	cluster runtime.Cluster
	pools   func() []*Pool
	lacking chan struct{} // capacity 1: a hint that waiting claims lack room
}

// NewRoomMaker returns a RoomMaker for pools of a cluster. Call its Run.
func NewRoomMaker(cluster runtime.Cluster, pools func() []*Pool) *RoomMaker {
	return &RoomMaker{cluster, pools, make(chan struct{}, 1)}
}

// Run makes room until ctx ends.
func (r *RoomMaker) Run(ctx context.Context) {
	var again <-chan time.Time // nil means no claim lacks room
	for wait := lackingFor; ; wait = min(2*wait, lookingEvery) {
		select {
		case <-r.lacking:
			wait = lackingFor
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		lacking, gave := false, false
		if backoff.Sleep(ctx, lackingFor) == nil {
			lacking, gave = r.giveWay(ctx)
		}
		if gave {
			_ = backoff.Sleep(ctx, usedWithin) // ctx ends the loop
		}
		if lacking {
			again = time.After(wait)
		}
	}
}

// Lacks reports that waiting claims lack room. It never blocks.
func (r *RoomMaker) Lacks() { syncs.Offer(r.lacking, struct{}{}) }

// giveWay makes idle runners of other pools give way to waiting claims that lack room. It reports
// whether any claim lacks room, and whether a runner gave way. Pools that have waiting claims themselves
// keep their runners.
func (r *RoomMaker) giveWay(ctx context.Context) (lacking, gave bool) {
	var lacks []runtime.Resources
	var others []givers
	for _, p := range r.pools() {
		status := p.Status()
		if lacking := p.Lacking(); len(lacking) > 0 {
			lacks = append(lacks, r.lackOf(ctx, status.EnvironmentID, lacking)...)
		}
		if status.Waiting == 0 && status.Idle > 0 {
			others = append(others, givers{status.Idle, p.Environment().Resources, p.LastUse(), p.Yield})
		}
	}
	return len(lacks) > 0, yieldTo(ctx, lacks, others)
}

func (r *RoomMaker) lackOf(ctx context.Context, of runtime.EnvironmentID, lacking []runtime.RunnerID) (all []runtime.Resources) {
	runners, err := r.cluster.Runners(ctx, of)
	if err != nil {
		return nil
	}
	for _, r := range runners {
		if r.Lacks != (runtime.Resources{}) && slices.Contains(lacking, r.ID) {
			all = append(all, r.Lacks)
		}
	}
	return all
}

// givers are the idle runners of one pool, which may give way.
type givers struct {
	idle    int
	size    runtime.Resources // of one
	lastUse time.Time
	yield   func(context.Context) (bool, error) // removes one, and reports whether it did
}

// yieldTo removes idle runners until each claim has what it lacks, those of the least recently used pool
// first, and reports whether any went. Only runners go that have something of it. Nothing goes for a
// claim if all of others together are too little for it.
func yieldTo(ctx context.Context, lacks []runtime.Resources, others []givers) (gave bool) {
	slices.SortStableFunc(others, func(a, b givers) int { return a.lastUse.Compare(b.lastUse) })
	var rest runtime.Resources // room that went beyond what the claims so far lack
	for _, lack := range lacks {
		needs := lack.Beyond(rest)
		rest = rest.Beyond(lack)
		var all runtime.Resources
		for _, of := range others {
			for range of.idle {
				all = all.Plus(of.size)
			}
		}
		if !needs.Fits(all) {
			continue
		}
		for i := range others {
			of := &others[i]
			for of.idle > 0 && needs.Beyond(of.size) != needs {
				if did, err := of.yield(ctx); err != nil || !did {
					of.idle = 0
					break
				}
				gave = true
				of.idle--
				rest = rest.Plus(of.size.Beyond(needs))
				needs = needs.Beyond(of.size)
			}
		}
	}
	return gave
}

// yieldedFor is how long a pool doesn't replace a runner that it gave up. After that the replacement
// starts when there is room: claims that still wait for room go first in the cluster's queue.
const yieldedFor = 10 * time.Second

type yieldedRunners struct {
	runners int
	until   time.Time
}

// Yield removes the youngest idle runner, so that the cluster has room for a waiting claim of another
// environment, and reports whether it did. A pool with waiting claims keeps its runners.
func (p *Pool) Yield(ctx context.Context) (bool, error) {
	return call(ctx, p, func(o *loop, reply func(bool, error)) {
		var youngest *entry
		for _, e := range o.runners {
			if e.State == runtime.RunnerIdle && (youngest == nil || e.ID > youngest.ID) {
				youngest = e
			}
		}
		if youngest == nil || o.waiting.length() > 0 {
			reply(false, nil)
			return
		}
		o.yielded = yieldedRunners{o.yielded.runners + 1, time.Now().Add(yieldedFor)}
		o.stop(youngest, runtime.GoneShrunk, "it gave way to a waiting claim of another environment")
		reply(true, nil)
	})
}

// Lacking returns the runners that waiting claims wait for, and that don't fit into the cluster.
func (p *Pool) Lacking() []runtime.RunnerID {
	if all := p.lacking.Load(); all != nil {
		return *all
	}
	return nil
}

// LastUse returns when a runner was last claimed; the zero time means not since the server's start.
func (p *Pool) LastUse() time.Time {
	if at := p.lastUse.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// spec returns the goal for Plan, without the runners that were given up lately, and when that ends.
func (o *loop) spec(now time.Time) (Spec, time.Time) {
	spec := o.goal.spec()
	if !now.Before(o.yielded.until) {
		o.yielded = yieldedRunners{}
		return spec, time.Time{}
	}
	spec.Size = max(spec.Size-o.yielded.runners, 0)
	return spec, o.yielded.until
}

// reason returns why the pool is below its size; "" means it gave up no runner.
func (y yieldedRunners) reason() string {
	if y.runners == 0 {
		return ""
	}
	return fmt.Sprintf("%d of its idle runners gave way to waiting claims of other environments; they are replaced when there is room", y.runners)
}
