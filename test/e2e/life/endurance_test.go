package life

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// held counts what a leak would increase.
type held struct{ goroutines, descriptors, mounts, cgroups, heapMiB int }

// within reports whether nothing grew, except for normal variation.
func (h held) within(before held) bool {
	return h.goroutines <= before.goroutines+10 && h.descriptors <= before.descriptors+10 &&
		h.mounts <= before.mounts && h.cgroups <= before.cgroups && h.heapMiB <= before.heapMiB+16
}

func holding(b bed.Bed) held {
	b.CloseIdle()
	goruntime.GC()
	var memory goruntime.MemStats
	goruntime.ReadMemStats(&memory)
	descriptors, _ := os.ReadDir("/proc/self/fd")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	h := held{
		goroutines: goruntime.NumGoroutine(), descriptors: len(descriptors),
		mounts: strings.Count(string(mounts), b.Data), heapMiB: int(memory.HeapAlloc >> 20),
	}
	for _, tree := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		groups, _ := filepath.Glob(tree + bed.Cgroups + "/*/cgroup.procs")
		h.cgroups += len(groups)
	}
	return h
}

func TestE2ECyclesLeaveNothing(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "endurance", "poolSize": 4, "resources": object{"memoryMiB": 64}})
	cycles := func(n int) {
		t.Helper()
		var group sync.WaitGroup
		turns := make(chan int)
		for range 8 {
			group.Go(func() {
				for i := range turns {
					if err := cycle(t.Context(), b, i); err != nil {
						t.Errorf("cycle %d: %v", i, err)
					}
				}
			})
		}
		for i := range n {
			turns <- i
		}
		close(turns)
		group.Wait()
		// Earlier tests' pools are in the same control groups.
		wait.For(t, "the pools are full and at rest", func() bool {
			var out struct {
				Environments []struct {
					PoolSize int
					Pool     struct{ Idle, Starting, Claimed, Stopping int }
				}
			}
			b.Call(t, `{ environments { poolSize pool { idle starting claimed stopping } } }`, nil, &out)
			for _, e := range out.Environments {
				if p := e.Pool; p.Idle != e.PoolSize || p.Starting+p.Claimed+p.Stopping > 0 {
					return false
				}
			}
			return true
		})
	}
	cycles(50) // creates everything that is made once and kept
	before := holding(b)
	cycles(bed.Thorough(200, 1000))
	after := held{}
	defer func() { t.Logf("before %+v, after %+v", before, after) }()
	wait.For(t, "nothing is held any more", func() bool {
		after = holding(b)
		return after.within(before)
	})
}
