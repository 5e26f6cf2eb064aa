package engine

import (
	"context"
	"slices"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/pool"
)

// lackingEvery is the interval in which room is made while waiting claims lack it.
const lackingEvery = 500 * time.Millisecond

// makeRoom makes idle runners give way to waiting claims of other environments, until ctx ends.
func (e *Engine) makeRoom(ctx context.Context) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-e.lacking:
		case <-again.C:
		case <-ctx.Done():
			return
		}
		pools, _ := e.catalog.allPools()
		if giveWay(ctx, pools) {
			again.Reset(lackingEvery)
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

// A candidate is a pool whose idle runners may give way.
type candidate struct {
	*pool.Pool
	idle int
}

// giveWay makes idle runners of other pools give way to waiting claims that lack room, those of the
// least recently used pool first. It reports whether any claim lacks room. Nothing gives way while a
// runner is being removed, because that makes room too, nor if all idle runners together have less
// memory than a claim needs. Pools that have waiting claims themselves keep their runners.
func giveWay(ctx context.Context, pools []*pool.Pool) (lacking bool) {
	var needs []runtime.Resources
	var others []candidate
	for _, p := range pools {
		status := p.Status()
		if status.Stopping > 0 {
			return true
		}
		for range status.Lacking {
			needs = append(needs, p.Environment().Resources)
		}
		if status.Waiting == 0 && status.Idle > 0 {
			others = append(others, candidate{p, status.Idle})
		}
	}
	slices.SortFunc(others, func(a, b candidate) int { return a.LastUse().Compare(b.LastUse()) })
	memory := 0
	for _, of := range others {
		memory += of.idle * of.Environment().Resources.MemoryMiB
	}
	for _, need := range needs {
		if memory < need.MemoryMiB { // perhaps the cluster can never place it
			continue
		}
		for need.MemoryMiB > 0 || need.CPUMHz > 0 {
			i := slices.IndexFunc(others, func(of candidate) bool { return of.idle > 0 })
			if i < 0 {
				return true
			}
			others[i].idle--
			freed := others[i].Environment().Resources
			if did, err := others[i].Yield(ctx); err != nil || !did {
				others[i].idle = 0
				continue
			}
			need.MemoryMiB -= freed.MemoryMiB
			need.CPUMHz -= freed.CPUMHz
			memory -= freed.MemoryMiB
		}
	}
	return len(needs) > 0
}
