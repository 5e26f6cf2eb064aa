package main

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// BenchmarkTrue starts a command on a new stream, and settles it.
func BenchmarkTrue(b *testing.B) {
	bed := newBed(b, 0)
	var took []time.Duration
	i := 0
	for b.Loop() {
		i++
		begin := time.Now()
		s, err := agent.StartExecution(b.Context(), bed.dial(b), agent.Start{ID: fmt.Sprint(i), Argv: []string{"true"}, Env: testEnv})
		if err != nil {
			b.Fatal(err)
		}
		if r := bed.finish(b, s); r.exit.Code != 0 {
			b.Fatalf("%+v", r)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkTrueParallel does the same from eight concurrent clients.
func BenchmarkTrueParallel(b *testing.B) {
	bed := newBed(b, 0)
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r, err := bed.start(b, agent.Start{ID: fmt.Sprint(time.Now().UnixNano(), &pb), Argv: []string{"true"}, Env: testEnv}); err != nil || r.exit.Code != 0 {
				b.Errorf("%+v, %v", r, err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per-s")
}

// BenchmarkOutput sends a gigabyte through the agent and acknowledges it.
func BenchmarkOutput(b *testing.B) {
	bed := newBed(b, 0)
	const size = 1 << 30
	b.SetBytes(size)
	for b.Loop() {
		s, err := bed.session(b, agent.Start{Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}, Env: testEnv})
		if err != nil {
			b.Fatal(err)
		}
		for n, acked := int64(0), int64(0); ; {
			event, err := s.Next()
			if err != nil {
				b.Fatal(err)
			}
			if event.Kind == agent.KindExited {
				if n != size {
					b.Fatalf("%d bytes", n)
				}
				break
			}
			n += int64(len(event.Data))
			if n-acked >= 256<<10 || n > acked && !s.Buffered() {
				acked = n
				if err := s.Ack(n); err != nil {
					b.Fatal(err)
				}
			}
		}
		_ = s.Settled()
		_ = s.Close()
	}
	b.ReportMetric(float64(bed.memory(b)), "KiB-private-after")
}

// settled returns the private memory when it hasn't changed for longer than the agent waits before
// it returns memory.
func (b *bed) settled(t testing.TB) (kib int) {
	t.Helper()
	since := time.Now()
	wait.For(t, "its memory stays", func() bool {
		if now := b.memory(t); now != kib {
			kib, since = now, time.Now()
		}
		return time.Since(since) >= 600*time.Millisecond
	})
	return kib
}

// BenchmarkIdle reports the private memory of an idle agent, at first and after some work.
func BenchmarkIdle(b *testing.B) {
	bed := newBed(b, 0)
	newBed(b, 0) // so that the program's text isn't counted as private to one
	fresh := bed.settled(b)
	for range 100 {
		bed.run(b, "true")
	}
	for b.Loop() {
		bed.run(b, "head", "-c", "10000000", "/dev/zero")
	}
	b.ReportMetric(float64(fresh), "KiB-private")
	b.ReportMetric(float64(bed.settled(b)), "KiB-private-later")
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", bed.pid))
	b.ReportMetric(float64(len(threads)), "threads")
}
