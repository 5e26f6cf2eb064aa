package scheduler

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/runtime"
)

var huge = runtime.Resources{CPUMHz: 1 << 38, MemoryMiB: 1 << 38, Processes: 1 << 38, WorkspaceMiB: 1 << 38}

// BenchmarkThroughput processes evaluations that arrive concurrently.
func BenchmarkThroughput(b *testing.B) {
	s := open(b, Config{Machine: huge, Logger: zap.NewNop()})
	defer start(b, s)()
	fresh(b, s)
	jobs := make([]Job, b.N)
	for i := range jobs {
		jobs[i] = job(string(runtime.NewRunnerID()), fmt.Sprint(i%20), runtime.PriorityRefill)
	}
	b.ResetTimer()
	before := cpuTime(b)
	register(b, s, jobs...)
	for snap := s.Snapshot(); s.stats.acked.Load() < int64(b.N); {
		var err error
		if snap, err = s.Wait(b.Context(), snap.index); err != nil {
			b.Fatal(err)
		}
		if s.stats.placed.Load() == int64(b.N) {
			break
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "evaluations/s")
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "µs-CPU/evaluation")
}

// cpuTime is measured because other programs use the machine, too.
func cpuTime(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkLife places, runs and ends a runner, with 1,000 others present.
func BenchmarkLife(b *testing.B) {
	s := open(b, Config{Machine: huge, Logger: zap.NewNop()})
	defer start(b, s)()
	fresh(b, s)
	after := populate(b, s, 1000)
	var took []time.Duration
	for b.Loop() {
		j := job(string(runtime.NewRunnerID()), "a", runtime.PriorityWaiting)
		began := time.Now()
		register(b, s, j)
		orders, at, err := s.Orders(b.Context(), after)
		if err != nil || len(orders) != 1 {
			b.Fatal(orders, err)
		}
		took = append(took, time.Since(began))
		update(b, s, orders[0].ID, runtime.AllocationRunning)
		s.Deregister(j.ID)
		if orders, after, err = s.Orders(b.Context(), at); err != nil || orders[0].Desired != runtime.DesiredStop {
			b.Fatal(orders, err)
		}
		update(b, s, orders[0].ID, runtime.AllocationComplete)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-to-order-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-to-order-p99")
}

// BenchmarkUnblock ends a runner, and waits until the next of 1,000 waiting ones is ordered.
func BenchmarkUnblock(b *testing.B) {
	s := open(b, Config{Logger: zap.NewNop()})
	defer start(b, s)()
	fresh(b, s)
	after := populate(b, s, 4)
	var group sync.WaitGroup
	next := 0
	wait := func() {
		next++
		register(b, s, job(fmt.Sprintf("w-%08d", next), fmt.Sprint(next%20), runtime.PriorityRefill))
	}
	for range 1000 {
		wait()
	}
	live := s.Snapshot().Allocations(Filter{})
	for b.Loop() {
		update(b, s, live[0].ID, runtime.AllocationComplete)
		orders, at, err := s.Orders(b.Context(), after)
		if err != nil || len(orders) != 1 {
			b.Fatal(orders, err)
		}
		after = at
		live = append(live[1:], orders[0])
		wait()
	}
	group.Wait()
	b.ReportMetric(float64(s.stats.unblocked.Load())/float64(max(s.stats.placed.Load()-4, 1)), "woken/placed")
}

// populate places n runners, and returns the index of the last order.
func populate(b *testing.B, s *Scheduler, n int) uint64 {
	b.Helper()
	for i := range n {
		register(b, s, job(fmt.Sprintf("there-%d", i), "there", runtime.PriorityRefill))
	}
	var after uint64
	for have := 0; have < n; {
		orders, at, err := s.Orders(b.Context(), after)
		if err != nil {
			b.Fatal(err)
		}
		have += len(orders)
		after = at
	}
	return after
}

// BenchmarkKept measures the memory of a runner until it is collected.
func BenchmarkKept(b *testing.B) {
	s := open(b, Config{Machine: huge, Logger: zap.NewNop()})
	defer start(b, s)()
	fresh(b, s)
	heap := func() uint64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.GC() // also what pools hold
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var after uint64
	lives := 0
	for b.Loop() {
		j := job(string(runtime.NewRunnerID()), "a", runtime.PriorityRefill)
		register(b, s, j)
		orders, at, err := s.Orders(b.Context(), after)
		if err != nil {
			b.Fatal(err)
		}
		s.Deregister(j.ID)
		if _, after, err = s.Orders(b.Context(), at); err != nil {
			b.Fatal(err)
		}
		update(b, s, orders[0].ID, runtime.AllocationComplete)
		lives++
	}
	b.ReportMetric(float64(heap()-before)/float64(lives), "bytes/life")
}

// BenchmarkStats reads Stats with 1,000 placed runners and 1,000 that wait for a turn, while the
// broker waits.
func BenchmarkStats(b *testing.B) {
	s := open(b, Config{Machine: huge, Logger: zap.NewNop()})
	stop := start(b, s)
	fresh(b, s)
	populate(b, s, 1000)
	stop()
	for i := range 1000 {
		register(b, s, job(fmt.Sprint("waiting ", i), "a", runtime.PriorityRefill))
	}
	if n := s.Stats().Depths.Ready[runtime.EvaluationPlace]; n != 1000 {
		b.Fatalf("%d wait", n)
	}
	for b.Loop() {
		s.Stats()
	}
}
