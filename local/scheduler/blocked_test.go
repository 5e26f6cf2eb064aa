package scheduler

import (
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime"
)

// A blockedBed is a scheduler without workers, for a machine with only memory to speak of.
type blockedBed struct {
	*bed
	t *testing.T
}

func withBlocked(t *testing.T, free int, test func(b *blockedBed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &blockedBed{t: t, bed: open(t, Config{Machine: runtime.Resources{CPUMHz: 1 << 20, MemoryMiB: 1000, Processes: 1 << 20, WorkspaceMiB: 1 << 20}})}
		b.free(free)
		test(b)
	})
}

// free sets what is free. It wakes nobody.
func (b *blockedBed) free(memoryMiB int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.node.Used.MemoryMiB = 1000 - memoryMiB
}

func (b *blockedBed) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wakeFitting()
}

// add registers a runner and lets its evaluation wait, as if a worker had found no room.
func (b *blockedBed) add(id, environment string, priority runtime.Priority, memoryMiB int) {
	b.t.Helper()
	register(b.t, b.bed, sized(wish(id, environment, priority), memoryMiB))
	b.mu.Lock()
	e := b.jobs[runtime.RunnerID(id)].next
	e.ready = false
	b.ready.Remove(e.position())
	d := b.hold(e)
	b.mu.Unlock()
	b.finish(b.t, d, []runtime.Shortage{{Dimension: runtime.DimensionMemory, Wanted: int64(memoryMiB), Capacity: 1000}})
}

// wakes takes the woken evaluations, and compares them.
func (b *blockedBed) wakes(want ...runtime.RunnerID) (woken []delivery) {
	b.t.Helper()
	got := map[runtime.RunnerID]bool{}
	for d := b.take(); d != nil; d = b.take() {
		woken = append(woken, *d)
		got[d.RunnerID] = true
	}
	for _, id := range want {
		if !got[id] {
			b.t.Errorf("%s isn't woken", id)
		}
	}
	if len(got) != len(want) {
		b.t.Errorf("woken %v, want %v", got, want)
	}
	return woken
}

func (b *blockedBed) keptFrom(id runtime.RunnerID, priority runtime.Priority) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomFor(b.jobs[id], priority).kept.MemoryMiB
}

// Room may be freed between the plan that found none and the wait.
func TestBlockWakesIfThereIsRoom(t *testing.T) {
	withBlocked(t, 256, func(b *blockedBed) {
		b.add("a", "x", 50, 256)
		b.wakes("a")
	})
}

func TestRoomIsPromisedOnce(t *testing.T) {
	withBlocked(t, 0, func(b *blockedBed) {
		b.add("a", "x", 50, 256)
		b.add("b", "x", 50, 256)
		b.free(300)
		b.wakeAll()
		b.wakeAll()
		first := b.wakes("a")
		if b.keptFrom("new", 50) != 256 || b.keptFrom("new", 80) != 0 || b.keptFrom("a", 50) != 0 {
			t.Errorf("kept: %d, %d, %d", b.keptFrom("new", 50), b.keptFrom("new", 80), b.keptFrom("a", 50))
		}
		b.finish(t, first[0], []runtime.Shortage{{Dimension: runtime.DimensionMemory, Wanted: 1}}) // another one was faster, and has ended again
		b.wakes("a")
		b.Deregister("a")
		b.wakes("b")
	})
}

func TestWakingFollowsPriority(t *testing.T) {
	withBlocked(t, 0, func(b *blockedBed) {
		b.add("huge", "x", 80, 2000) // never fits, and blocks nobody
		b.add("a1", "x", 50, 100)
		b.add("a2", "x", 50, 100)
		b.add("b1", "y", 50, 300) // doesn't fit at first: it is skipped
		b.add("c1", "z", 50, 100)
		b.add("claim", "x", 80, 100)
		b.free(250)
		b.wakeAll()
		b.wakes("claim", "a1")
		b.free(750)
		b.wakeAll()
		b.wakes("b1", "c1", "a2")
		b.add("claim-2", "x", 80, 400)
		b.add("refill", "x", 50, 40) // 50 are free, but kept for the claim
		b.wakes()
		if got := b.keptFrom("any", 50); got != 700+400 {
			t.Errorf("kept: %d", got)
		}
		b.Deregister("claim-2")
		b.wakes("refill")
		if d := b.Stats().Depths; d.Blocked != 7 || d.Lacking[runtime.DimensionMemory] != 7 {
			t.Errorf("depths: %+v", d)
		}
	})
}
