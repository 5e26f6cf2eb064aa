package server

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// GoShare is how much of its control group's limit Go may use, in hundredths. The
// kernel charges the rest for what Go doesn't count: files in memory, sockets, the
// start of a child.
const GoShare = 90

// serverMemory returns how many bytes of memory this server has: the smallest limit
// of its control group and those above, or that of the machine. grouped says which. The
// error says why a group's limit can't be read.
func serverMemory() (bytes int64, grouped bool, err error) {
	bytes = math.MaxInt64
	if machine, err := memlimit.FromSystem(); err == nil {
		bytes = int64(min(machine, math.MaxInt64))
	}
	limit, err := memlimit.FromCgroup()
	switch {
	case err == nil && limit < uint64(bytes):
		return int64(limit), true, nil
	case errors.Is(err, memlimit.ErrNoLimit), errors.Is(err, memlimit.ErrNoCgroup), errors.Is(err, memlimit.ErrCgroupsNotSupported):
		err = nil
	}
	if bytes == math.MaxInt64 {
		bytes = 1 << 30 // nothing could be read
	}
	return bytes, false, err
}

// limitMemory has Go collect garbage before the server's control group is full,
// unless the operator set GOMEMLIMIT. Without a group's limit there is none:
// the machine's memory is the runners', too.
func limitMemory(logger *zap.Logger) {
	memory, grouped, err := serverMemory()
	switch {
	case os.Getenv("GOMEMLIMIT") != "":
		logger.Info("GOMEMLIMIT bounds the memory of the server", zap.Int64("bytes", debug.SetMemoryLimit(-1)))
	case grouped:
		limit := memory / 100 * GoShare
		debug.SetMemoryLimit(limit)
		logger.Info("the control group bounds the memory of the server", zap.Int64("bytes", memory), zap.Int64("GOMEMLIMIT", limit))
	case err != nil:
		logger.Warn("the limit of the server's control group can't be read, and isn't kept: set GOMEMLIMIT and --body-memory if there is one", zap.Int64("machineBytes", memory), zap.Error(err))
	default:
		logger.Info("no control group bounds the memory of the server", zap.Int64("machineBytes", memory))
	}
}

// A memoryReading is what Go says of its memory, in bytes.
type memoryReading struct {
	held      uint64 // from the system
	goal      uint64 // the heap may grow to, before garbage is collected
	allocated uint64 // ever
}

// overGoal reports whether much more is held than the heap's goal. Without GOGC that is
// a huge number.
func (m memoryReading) overGoal() bool {
	return m.held > SpareMemory && (m.held-SpareMemory)/3*2 > m.goal
}

func readMemory() memoryReading {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/goal:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return memoryReading{held: samples[0].Value.Uint64() - samples[1].Value.Uint64(), goal: samples[2].Value.Uint64(), allocated: samples[3].Value.Uint64()}
}

// A returner decides when memory is given back to the system. Go itself does so at
// its leisure: garbage that nobody adds to is collected after two minutes, and what is
// free then goes back with a hundredth of a processor.
type returner struct {
	least uint64        // that was held at any time: what the server needs
	base  memoryReading // after the last time
	last  memoryReading
	looks int // since the last time
	pause int // in looks, until what is held is tried again: it may have been in use
	rest  int // in looks, until what is held over the goal is tried again: it stayed the last time
}

const (
	// SpareMemory is how many bytes aren't worth giving back.
	SpareMemory = 64 << 20
	firstPause  = 2  // looks; each further one is twice as long
	mostPause   = 24 // looks: two minutes, as Go's own
)

// due reports whether memory should be given back now. It reports true in two cases:
// the process holds much more than the heap's goal; or it holds much more than before
// and allocates little, so that no collection will come soon.
func (r *returner) due(now memoryReading) bool {
	added := now.allocated - r.last.allocated
	r.last = now
	r.least, r.base.held = min(r.least, now.held), min(r.base.held, now.held)
	r.looks++
	more := func(than uint64) bool { return now.held > than+than/2+SpareMemory }
	quiet := added < now.held/16
	switch {
	case now.overGoal() && r.looks >= r.rest, quiet && more(r.base.held):
		r.pause = firstPause
		return true
	case quiet && more(r.least) && r.looks >= r.pause:
		r.pause = min(2*r.pause, mostPause)
		return true
	}
	return false
}

// newReturner returns one that compares with what is held now.
func newReturner() *returner {
	now := readMemory()
	r := &returner{least: now.held, pause: firstPause}
	r.gave(now)
	return r
}

// gave takes in what is held after memory was given back.
func (r *returner) gave(now memoryReading) {
	r.base, r.last, r.looks = now, now, 0
	if !now.overGoal() {
		r.rest = 0
		return
	}
	r.rest = min(max(2*r.rest, firstPause), mostPause)
}

// returnEvery is how often memory is looked at, which takes microseconds.
const returnEvery = 5 * time.Second

// run gives memory back that a burst has left, until ctx ends. That stops
// nobody for longer than any collection of garbage does.
func (r *returner) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if r.due(readMemory()) {
			debug.FreeOSMemory()
			r.gave(readMemory())
		}
	}
}
