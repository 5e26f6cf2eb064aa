package scheduler

import (
	"fmt"
	goruntime "runtime"
	"slices"
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
	defer start(s)()
	jobs := make([]Job, b.N)
	for i := range jobs {
		jobs[i] = wish(string(runtime.NewRunnerID()), fmt.Sprint(i%20), runtime.PriorityRefill)
	}
	b.ResetTimer()
	before := cpuTime(b)
	register(b, s, jobs...)
	for range b.N {
		<-s.placements
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
	defer start(s)()
	populate(b, s, 1000)
	var took []time.Duration
	for b.Loop() {
		j := wish(string(runtime.NewRunnerID()), "a", runtime.PriorityWaiting)
		began := time.Now()
		register(b, s, j)
		a := <-s.placements
		took = append(took, time.Since(began))
		s.Update(a.RunnerID, runtime.AllocationRunning, "")
		s.Deregister(j.ID)
		s.Update(a.RunnerID, runtime.AllocationComplete, "")
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-to-order-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-to-order-p99")
}

// BenchmarkUnblock ends a runner, and waits until the next of 1,000 waiting ones is ordered.
func BenchmarkUnblock(b *testing.B) {
	s := open(b, Config{Logger: zap.NewNop()})
	defer start(s)()
	populate(b, s, 4)
	next := 0
	wait := func() {
		next++
		register(b, s, wish(fmt.Sprintf("w-%08d", next), fmt.Sprint(next%20), runtime.PriorityRefill))
	}
	for range 1000 {
		wait()
	}
	live := s.allocated("")
	for b.Loop() {
		s.end(live[0].RunnerID)
		live = append(live[1:], <-s.placements)
		wait()
	}
	b.ReportMetric(float64(s.Stats().Unblocked)/float64(max(s.Stats().Placed-4, 1)), "woken/placed")
}

// populate places n runners.
func populate(b *testing.B, s *bed, n int) {
	b.Helper()
	for i := range n {
		register(b, s, wish(fmt.Sprintf("there-%d", i), "there", runtime.PriorityRefill))
	}
	for range n {
		<-s.placements
	}
}

// BenchmarkKept measures the memory of a runner until it is collected.
func BenchmarkKept(b *testing.B) {
	s := open(b, Config{Machine: huge, Logger: zap.NewNop()})
	defer start(s)()
	heap := func() uint64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.GC() // also what pools hold
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	lives := 0
	for b.Loop() {
		j := wish(string(runtime.NewRunnerID()), "a", runtime.PriorityRefill)
		register(b, s, j)
		<-s.placements
		s.Deregister(j.ID)
		s.end(j.ID)
		lives++
	}
	b.ReportMetric(float64(heap()-before)/float64(lives), "bytes/life")
}

// BenchmarkStats reads Stats with 1,000 placed runners and 1,000 that wait for a turn, while the
// broker waits.
func BenchmarkStats(b *testing.B) {
	s := open(b, Config{Machine: huge, Logger: zap.NewNop()})
	stop := start(s)
	populate(b, s, 1000)
	stop()
	for i := range 1000 {
		register(b, s, wish(fmt.Sprint("waiting ", i), "a", runtime.PriorityRefill))
	}
	if n := s.Stats().Depths.Ready; n != 1000 {
		b.Fatalf("%d wait", n)
	}
	for b.Loop() {
		s.Stats()
	}
}
