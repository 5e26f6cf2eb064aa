package server

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/clients"
	"github.com/rockpool/rockpool/config"
)

// GoShare is the part of the cgroup's memory limit that Go may use, in percent. The rest is for
// memory that only the kernel counts: cached files, sockets, the start of child processes.
const GoShare = 90

// serverMemory returns the server's memory in bytes. If its cgroup or a group above it has a limit,
// that is the smallest such limit, and grouped is true. Otherwise it is the machine's memory. err
// says why the cgroup's limit can't be read; bytes is valid even then.
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
		bytes = 1 << 30 // neither limit could be read
	}
	return bytes, false, err
}

// limitMemory sets Go's memory limit below the limit of the server's cgroup, unless the operator
// set GOMEMLIMIT. Without a cgroup limit it sets none, because the runners use the machine's
// memory, too.
func limitMemory(logger *zap.Logger) {
	memory, grouped, err := serverMemory()
	switch {
	case os.Getenv("GOMEMLIMIT") != "":
		logger.Info("GOMEMLIMIT limits the server's memory", zap.Int64("bytes", debug.SetMemoryLimit(-1)))
	case grouped:
		limit := memory / 100 * GoShare
		debug.SetMemoryLimit(limit)
		logger.Info("the control group limits the server's memory", zap.Int64("bytes", memory), zap.Int64("GOMEMLIMIT", limit))
	case err != nil:
		logger.Warn("the memory limit of the server's control group can't be read and isn't applied: if there is one, set GOMEMLIMIT and --body-memory", zap.Int64("machineBytes", memory), zap.Error(err))
	default:
		logger.Info("no control group limits the server's memory", zap.Int64("machineBytes", memory))
	}
}

// A memoryReading has numbers of Go's runtime about its memory, in bytes.
type memoryReading struct {
	held      uint64 // memory from the system that is in use
	goal      uint64 // heap size at which the next garbage collection starts
	allocated uint64 // total since the start
}

// overGoal reports whether much more memory is held than the heap's goal. With GOGC=off the goal is huge.
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

// A returner decides when to return memory to the system. Go itself does that slowly: without
// allocations it collects garbage only after two minutes, and then returns free memory with 1 % of
// a CPU.
type returner struct {
	least  uint64        // least memory held so far: the server's need
	base   memoryReading // after the last return
	last   memoryReading
	checks int // since the last return
	pause  int // checks until the next attempt for memory above least: it may have been in use
	rest   int // checks until the next attempt for memory above the goal, if the last one didn't help
}

const (
	// SpareMemory is the number of bytes that aren't worth returning.
	SpareMemory = 64 << 20
	firstPause  = 2  // checks; each further pause is twice as long
	mostPause   = 24 // checks: two minutes, as Go's own interval
)

// due reports whether memory should be returned now. One reason is that the process holds much more
// than the heap's goal. The other is that it holds much more than before and allocates little, so Go
// won't collect garbage soon.
func (r *returner) due(now memoryReading) bool {
	added := now.allocated - r.last.allocated
	r.last = now
	r.least, r.base.held = min(r.least, now.held), min(r.base.held, now.held)
	r.checks++
	more := func(than uint64) bool { return now.held > than+than/2+SpareMemory }
	quiet := added < now.held/16
	switch {
	case now.overGoal() && r.checks >= r.rest, quiet && more(r.base.held):
		r.pause = firstPause
		return true
	case quiet && more(r.least) && r.checks >= r.pause:
		r.pause = min(2*r.pause, mostPause)
		return true
	}
	return false
}

// newReturner returns a returner that compares with the memory held now.
func newReturner() *returner {
	now := readMemory()
	r := &returner{least: now.held, pause: firstPause}
	r.returned(now)
	return r
}

// returned records the memory held after a return.
func (r *returner) returned(now memoryReading) {
	r.base, r.last, r.checks = now, now, 0
	if !now.overGoal() {
		r.rest = 0
		return
	}
	r.rest = min(max(2*r.rest, firstPause), mostPause)
}

// returnEvery is the interval of checks. A check takes microseconds.
const returnEvery = 5 * time.Second

// run returns unused memory after bursts, until ctx ends. It stops other goroutines no longer than
// a garbage collection.
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
			r.returned(readMemory())
		}
	}
}

// maxHead bounds a request's line and headers; net/http adds 4 KiB. Longer queries need POST.
const maxHead = 16 << 10

// Maximum memory of one connection and one operation, times 4: each kind may use a quarter of the memory.
//
//   - A connection takes about 30 KiB for its goroutine and buffers, and 26 KiB for the largest head.
//     All connections share their quarter.
//   - An operation takes a goroutine, and up to 112 KiB of body, document, fields and response that
//     aren't charged otherwise. An upload has a buffer of 64 KiB instead of most of these. A
//     subscription of a stalled reader takes twice transport.DefaultBudget. The operations and
//     subscriptions of one peer share their quarter.
const (
	defaultBodyMemory  = 1 << 30
	MemoryOfConnection = 4 * 64 << 10
	memoryOfOperation  = 4 * 128 << 10
)

// bounds returns the limits of peers for a server with the given memory in bytes and number of open
// files; 0 files means no limit.
func bounds(c config.Bounds, maxBody, memory, files int64) clients.Bounds {
	least := clients.LeastMemory(maxBody)
	bodies := cmp.Or(c.BodyMemory, max(min(memory/4, defaultBodyMemory), least))
	connections := memory / MemoryOfConnection
	if files > 0 {
		connections = min(connections, files/4*3) // the rest is for runners and files
	}
	all := cmp.Or(c.Connections, max(int(connections), c.PeerConnections, 64))
	each := max(int(memory/memoryOfOperation), 64)
	b := clients.Bounds{
		AllConnections: all,
		Connections:    cmp.Or(c.PeerConnections, max(all/2, 1)),
		Operations:     cmp.Or(c.PeerOperations, each),
		Subscriptions:  cmp.Or(c.PeerSubscriptions, each),
		Bodies:         bodies,
		PeerBodies:     max(bodies/2, min(least, bodies)),
	}
	b.TokenOperations = cmp.Or(c.TokenOperations, 2*b.Operations)
	b.TokenBodies = max(bodies/4*3, b.PeerBodies)
	b.TokenSubscriptions = cmp.Or(c.TokenSubscriptions, 2*b.Subscriptions)
	return b
}

// keptMemory returns how many bytes a server with the given memory keeps for its callers beyond their
// requests; see quota.Memory. Go's garbage collector needs as much again.
func keptMemory(memory int64) int64 { return max(min(memory/8, defaultBodyMemory), 16<<20) }

// fileLimit returns the limit of open files of this process; 0 means unknown.
func fileLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int64(min(limit.Cur, 1<<40))
}
