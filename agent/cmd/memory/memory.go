// Package memory keeps the agent small: a hundred runners stand idle for each that is busy. It
// bounds the heap, makes the threads that the agent will need before its runner can be full of
// processes, and gives memory back to the kernel when nothing goes on.
package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Tune keeps the heap small.
func Tune() {
	// The caches of a second processor cost 160 KiB. (In a local runner the
	// environment says so too, so that there are never more.)
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(24 << 20)
}

// AddProcessor gives the agent what it needs to run commands: a second processor (in the sense
// of Go), also where the machine has only one. A fork holds its processor until the child's exec;
// other goroutines run meanwhile, until a garbage collection begins. More processors would add
// caches and threads: what the agent does is waiting and copying.
func AddProcessor() { runtime.GOMAXPROCS(2) }

// Threads is how many threads are made beside those that the runtime has already: for two that
// run Go and those that block in a system call.
const Threads = 5

// BusyThreads is the same where commands can take all the processes that the agent can have.
// 500 starts at once in such a runner, while it was full, took 11 and needed more.
const BusyThreads = 16

// SpareThreads makes threads that stay. A runner may be at its limit of processes when the
// agent has to act, and the Go runtime ends a program that can't start a thread.
func SpareThreads(threads int) {
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

// An Idler gives memory back to the kernel when nothing has gone on for a while, if that gives
// more than it costs.
type Idler struct {
	hints chan struct{}
	least int  // KiB in use when there was nothing to give back
	given bool // memory was given back once
}

// How much must have come into use for a collection to be worth it, in KiB. The first two
// collections cost 600 for good, since the runtime makes lists for each size of objects
// (runtime.ReadMemStats does too, so it isn't used). A first command costs 250, a further small
// one 10; most runners end before that adds up.
const (
	firstWorth = 700
	laterWorth = 100
)

// NewIdler returns an idler that compares with the memory in use now.
func NewIdler() *Idler { return &Idler{hints: make(chan struct{}, 1), least: inUse()} }

// Hint reports that some work has ended. It never blocks.
func (i *Idler) Hint() {
	select {
	case i.hints <- struct{}{}:
	default:
	}
}

// Run acts on hints, for as long as the program runs.
func (i *Idler) Run() {
	const quiet = 250 * time.Millisecond
	timer := time.NewTimer(quiet)
	timer.Stop()
	for {
		select {
		case <-i.hints:
			timer.Reset(quiet)
		case <-timer.C:
			i.giveBack()
		}
	}
}

func (i *Idler) giveBack() {
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

// inUse returns how much memory the agent has that no file backs, in KiB; 0 if
// the kernel doesn't say.
func inUse() int {
	fd, err := unix.Open("/proc/self/statm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	var text [128]byte
	n, _ := unix.Read(fd, text[:])
	// All, resident, and the part of this that files back, in pages.
	var pages [3]int
	field := 0
	for word := range strings.FieldsSeq(string(text[:max(n, 0)])) {
		if field == len(pages) {
			break
		}
		pages[field], _ = strconv.Atoi(word)
		field++
	}
	return (pages[1] - pages[2]) * (os.Getpagesize() >> 10)
}
