package server

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/wait"
)

// TestMemoryIsReturnedAfterABurst: once, with or without a garbage collection; not again
// immediately for the same memory, which may have been in use; and never for little memory.
func TestMemoryIsReturnedAfterABurst(t *testing.T) {
	const mib = 1 << 20
	r := &returner{least: 40 * mib, pause: firstPause}
	r.returned(memoryReading{held: 40 * mib, goal: 20 * mib, allocated: 100 * mib})
	for _, step := range []struct {
		name string
		now  memoryReading
		due  bool
	}{
		{"at rest: not due", memoryReading{40 * mib, 20 * mib, 100 * mib}, false},
		{"a little more: not due", memoryReading{110 * mib, 100 * mib, 101 * mib}, false},
		{"flood begins: not due", memoryReading{600 * mib, 500 * mib, 700 * mib}, false},
		{"flood continues: not due", memoryReading{650 * mib, 600 * mib, 1500 * mib}, false},
		{"flood over: due", memoryReading{650 * mib, 600 * mib, 1501 * mib}, true},
		{"memory returned: not due", memoryReading{50 * mib, 20 * mib, 1502 * mib}, false},
		{"much is needed: not due", memoryReading{600 * mib, 800 * mib, 2200 * mib}, false},
		{"much is still needed: due", memoryReading{600 * mib, 800 * mib, 2201 * mib}, true},
		{"memory in use: not due", memoryReading{590 * mib, 800 * mib, 2202 * mib}, false},
		{"memory still in use: due", memoryReading{590 * mib, 800 * mib, 2203 * mib}, true},
		{"first of a longer pause", memoryReading{590 * mib, 800 * mib, 2204 * mib}, false},
		{"second of a longer pause", memoryReading{590 * mib, 800 * mib, 2205 * mib}, false},
		{"third of a longer pause", memoryReading{590 * mib, 800 * mib, 2206 * mib}, false},
		{"pause twice as long: due", memoryReading{590 * mib, 800 * mib, 2207 * mib}, true},
		{"others work: not due", memoryReading{700 * mib, 800 * mib, 3200 * mib}, false},
		{"most was garbage: due", memoryReading{700 * mib, 100 * mib, 4200 * mib}, true},
		{"no GOGC: not due", memoryReading{100 * mib, 1<<64 - 1, 5000 * mib}, false},
	} {
		due := r.due(step.now)
		if due != step.due {
			t.Errorf("%s: got %t, want %t", step.name, due, step.due)
		}
		if due {
			now := step.now
			now.held = 45 * mib
			if step.now.goal == 800*mib { // it is in use
				now.held = 590 * mib
			}
			r.returned(now)
		}
	}
}

// TestMemoryInUseIsTriedLessAndLess: a garbage collection doesn't bring it below the goal.
func TestMemoryInUseIsTriedLessAndLess(t *testing.T) {
	const mib = 1 << 20
	r := &returner{least: 40 * mib, pause: firstPause}
	now := memoryReading{held: 600 * mib, goal: 100 * mib}
	var at []int
	for look := 1; look <= 100; look++ {
		now.allocated += 100 * mib // it isn't quiet
		if r.due(now) {
			at = append(at, look)
			r.returned(now)
		}
	}
	if want := []int{1, 3, 7, 15, 31, 55, 79}; !slices.Equal(at, want) {
		t.Errorf("it is tried at the looks %v, want %v", at, want)
	}
	now.held = 100 * mib
	r.returned(now)
	if now.held = 600 * mib; !r.due(now) {
		t.Error("what is new isn't given back at once")
	}
}

// TestRunReturnsMemoryToTheSystem with Go's collector off, so that nothing else does.
func TestRunReturnsMemoryToTheSystem(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	before := readMemory().held
	r := newReturner()
	running.Go(func() { r.run(ctx, time.Millisecond) })
	burst(4 * SpareMemory)
	wait.For(t, "the memory is given back", func() bool { return readMemory().held <= before+before/2+SpareMemory })
}

// burst allocates memory and leaves it as garbage.
func burst(bytes int) {
	for range 4 {
		part := make([]byte, bytes/4)
		for i := 0; i < len(part); i += 4096 {
			part[i] = 1
		}
	}
}
