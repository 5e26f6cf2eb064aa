package engine

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// lackingEvery is the interval in which room is made while waiting claims lack it.
const lackingEvery = 500 * time.Millisecond

// patience is how often in a row lacking room is looked for before runners that are being removed no
// longer count as room: a removal may never succeed.
const patience = 20

// makeRoom makes idle runners give way to waiting claims of other environments, until ctx ends.
func (e *Engine) makeRoom(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-e.lacking:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		if e.giveWay(ctx, looks%patience != 0) {
			again.Reset(lackingEvery)
		} else {
			looks = 0
		}
		select { // the room that was made needs time to be used
		case <-time.After(lackingEvery):
		case <-ctx.Done():
			return
		}
	}
}

// lacks reports that waiting claims lack room. It never blocks.
func (e *Engine) lacks() {
	select {
	case e.lacking <- struct{}{}:
	default:
	}
}

// giveWay makes idle runners of other pools give way to waiting claims that lack room. It reports
// whether any claim lacks room. If patient, runners that are being removed count as room. Pools that
// have waiting claims themselves keep their runners.
func (e *Engine) giveWay(ctx context.Context, patient bool) (lacking bool) {
	pools, _ := e.catalog.allPools()
	var lacks []runtime.Resources
	var coming runtime.Resources
	var others []givers
	for _, p := range pools {
		status, size := p.Status(), p.Environment().Resources
		for range status.Stopping {
			coming = coming.Plus(size)
		}
		if status.Lacking > 0 {
			lacks = append(lacks, e.lackOf(ctx, status)...)
		}
		if status.Waiting == 0 && status.Idle > 0 {
			others = append(others, givers{status.Idle, size, p.LastUse(), p.Yield})
		}
	}
	if !patient {
		coming = runtime.Resources{}
	}
	yieldTo(ctx, lacks, coming, others)
	return len(lacks) > 0
}

// lackOf returns what each runner lacks that a waiting claim of a pool waits for, as it is now.
func (e *Engine) lackOf(ctx context.Context, status runtime.PoolStatus) (all []runtime.Resources) {
	runners, err := e.cluster.Runners(ctx, status.EnvironmentID)
	if err != nil {
		return nil
	}
	for _, r := range runners {
		if r.Lacks != (runtime.Resources{}) && len(all) < status.Lacking {
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
// first. Only runners go that have something of it. Coming is room that is being freed. Nothing goes
// for a claim if all of others together, and what is coming, are too little for it.
func yieldTo(ctx context.Context, lacks []runtime.Resources, coming runtime.Resources, others []givers) {
	slices.SortStableFunc(others, func(a, b givers) int { return a.lastUse.Compare(b.lastUse) })
	for _, lack := range lacks {
		needs := lack.Beyond(coming)
		coming = coming.Beyond(lack)
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
				of.idle--
				coming = coming.Plus(of.size.Beyond(needs))
				needs = needs.Beyond(of.size)
			}
		}
	}
}
