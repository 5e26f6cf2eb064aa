package executor

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/rockpool/rockpool/agent/cmd/proc"
)

// The agent stays small, since a hundred runners are idle for each one that is busy. It bounds its heap, and returns
// memory to the kernel when it is idle. It also creates the threads that it will need before its runner can be full
// of processes.

// TuneMemory keeps the heap small. Call it first.
func TuneMemory() {
	// The caches of a second processor take 160 KiB. (A local runner also sets GOMAXPROCS in the
	// environment, so that there is never more than one.)
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(24 << 20)
}

// addProcessor gives the agent a second processor (in Go's sense), which it needs to run commands,
// even on a machine with only one. A fork occupies its processor until the child's exec. Other
// goroutines run meanwhile, until a garbage collection begins. More processors would only add
// caches and threads: the agent mostly waits and copies.
func addProcessor() { runtime.GOMAXPROCS(2) }

// usualThreads is the number of threads to create, in addition to those of the runtime: for two that run
// Go code and those that block in system calls.
const usualThreads = 5

// busyThreads is the number if commands can use up all processes that the agent may have. 500
// concurrent starts in such a runner, while it was full, took 11 threads and needed more.
const busyThreads = 16

// spareThreads creates threads that stay. A runner may be at its limit of processes when the agent
// has to act, and the Go runtime aborts a program that can't start a thread.
func spareThreads(threads int) {
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

// An idler returns memory to the kernel after a time without work, if that gains more than it
// costs. hint may be called from any goroutine.
type idler struct {
	hints chan struct{} // capacity 1
	least int           // KiB in use when there was nothing to return
	given bool          // memory was returned once
}

// How many KiB must have come into use for a collection to pay off. The first two collections cost
// 600 KiB permanently, because the runtime makes lists for each size of objects. (So does
// runtime.ReadMemStats, which isn't used therefore.) A first command costs 250 KiB, a further small
// one 10 KiB. Most runners end before that adds up.
const (
	firstWorth = 700
	laterWorth = 100
)

func newIdler() *idler { return &idler{hints: make(chan struct{}, 1), least: inUse()} }

// hint reports that some work has ended. It never blocks.
func (i *idler) hint() {
	select {
	case i.hints <- struct{}{}:
	default:
	}
}

func (i *idler) run() {
	const quiet = 250 * time.Millisecond
	timer := time.NewTimer(quiet)
	timer.Stop()
	for {
		select {
		case <-i.hints:
			// Each hint begins a new wait, so the agent returns memory only after a pause in its
			// work.
			timer.Reset(quiet)
		case <-timer.C:
			i.giveBack()
		}
	}
}

// giveBack collects garbage and returns memory to the kernel, if enough came into use since the
// last time.
func (i *idler) giveBack() {
	worth := laterWorth
	if !i.given {
		worth = firstWorth
	}
	if now := inUse(); now > 0 && now-i.least < worth {
		return
	}
	debug.FreeOSMemory()
	i.given, i.least = true, inUse()
}

// inUse returns the agent's anonymous memory in KiB, 0 if it is unknown.
func inUse() int {
	var buf [128]byte
	text, _ := proc.Read(os.Getpid(), "statm", buf[:])
	// Total, resident, and file-backed resident pages.
	var pages [3]int
	field := 0
	for word := range bytes.FieldsSeq(text) {
		if field == len(pages) {
			break
		}
		pages[field], _ = strconv.Atoi(string(word))
		field++
	}
	return (pages[1] - pages[2]) * (os.Getpagesize() >> 10)
}
