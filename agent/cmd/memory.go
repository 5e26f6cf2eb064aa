package main

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// tuneMemory keeps the heap small: a hundred runners stand idle for each that
// is busy.
func tuneMemory() {
	// More would add caches and threads; what the agent does is waiting and copying.
	runtime.GOMAXPROCS(min(2, runtime.NumCPU()))
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(24 << 20)
}

// threads is how many threads are made beside those that the runtime has
// already: for two that run Go and those that block in a system call.
const threads = 4

// spareThreads makes the threads that the agent will need. A runner may be at
// its limit of processes when the agent has to act, and the Go runtime ends a
// program that can't have a thread.
func spareThreads() {
	var up, done sync.WaitGroup
	up.Add(threads)
	for range threads {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			up.Done()
			up.Wait()
		})
	}
	done.Wait()
}

// An idler gives memory back to the kernel when nothing has gone on for a
// while. An agent that has only answered pings has nothing to give back, and a
// collection would cost it 200 KiB.
type idler struct {
	hints chan struct{}
}

func newIdler() *idler { return &idler{hints: make(chan struct{}, 1)} }

func (i *idler) hint() {
	select {
	case i.hints <- struct{}{}:
	default:
	}
}

func (i *idler) run() {
	const quiet = 250 * time.Millisecond
	for range i.hints {
		timer := time.NewTimer(quiet)
		for waiting := true; waiting; {
			select {
			case <-i.hints:
				timer.Reset(quiet)
			case <-timer.C:
				waiting = false
			}
		}
		debug.FreeOSMemory()
	}
}
