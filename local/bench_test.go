package local

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1e6
}

// BenchmarkAlone makes and removes runners one after the other.
func BenchmarkAlone(b *testing.B) {
	bench := running(b)
	var starts, removes []time.Duration
	for b.Loop() {
		began := time.Now()
		id := bench.begin(hostEnvironment())
		starts = append(starts, time.Since(began))
		began = time.Now()
		if err := bench.Remove(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		removes = append(removes, time.Since(began))
	}
	b.ReportMetric(median(starts), "ms/start(p50)")
	b.ReportMetric(median(removes), "ms/remove(p50)")
}

// BenchmarkTogether fills a pool of 50, measures the memory of idle agents, marks the runners, and
// ends.
func BenchmarkTogether(b *testing.B) {
	const runners = 50
	for b.Loop() {
		bench := newBench(b)
		bench.stop()
		bench.useSQLite()
		bench.open()
		bench.run()
		began := time.Now()
		ids := make([]runtime.RunnerID, runners)
		for i := range ids {
			ids[i] = runtime.NewRunnerID()
			if err := bench.Start(b.Context(), ids[i], hostEnvironment(), runtime.PriorityRefill); err != nil {
				b.Fatal(err)
			}
		}
		for _, id := range ids {
			bench.await(id, runtime.RunnerIdle)
		}
		b.ReportMetric(runners/time.Since(began).Seconds(), "starts/s")
		var private []int
		for _, id := range ids {
			private = append(private, privateKiB(b, bench.agentOf(id)))
		}
		slices.Sort(private)
		b.ReportMetric(float64(private[runners/2]), "KiB/idle(p50)")
		var marks []time.Duration
		for _, id := range ids {
			began := time.Now()
			if err := bench.Mark(b.Context(), id, runtime.Claim{Epoch: 1, ClaimedAt: began}); err != nil {
				b.Fatal(err)
			}
			marks = append(marks, time.Since(began))
		}
		b.ReportMetric(median(marks)*1000, "µs/mark(p50)")
		var looks []time.Duration
		for _, id := range ids {
			began := time.Now()
			if _, err := bench.Evidence(b.Context(), id); err != nil {
				b.Fatal(err)
			}
			looks = append(looks, time.Since(began))
		}
		b.ReportMetric(median(looks)*1000, "µs/evidence(p50)")
		var dials []time.Duration
		for _, id := range ids {
			began := time.Now()
			conn, err := bench.Dial(b.Context(), id)
			if err != nil {
				b.Fatal(err)
			}
			dials = append(dials, time.Since(began))
			_ = conn.Close()
		}
		b.ReportMetric(median(dials)*1000, "µs/dial(p50)")
		began = time.Now()
		bench.stop()
		b.ReportMetric(time.Since(began).Seconds(), "s/end")
	}
}

// BenchmarkRestore measures how long New takes for 50 runners, 10 of them claimed.
func BenchmarkRestore(b *testing.B) {
	const runners, claimed = 50, 10
	bench := newBench(b)
	bench.stop()
	bench.useSQLite()
	bench.runKept()
	ids := make([]runtime.RunnerID, runners)
	for i := range ids {
		ids[i] = runtime.NewRunnerID()
		if err := bench.Start(b.Context(), ids[i], hostEnvironment(), runtime.PriorityRefill); err != nil {
			b.Fatal(err)
		}
	}
	for i, id := range ids {
		bench.await(id, runtime.RunnerIdle)
		if i < claimed {
			if err := bench.Mark(b.Context(), id, runtime.Claim{Epoch: 1, ClaimedAt: time.Now()}); err != nil {
				b.Fatal(err)
			}
		}
	}
	bench.stop()
	var restores []time.Duration
	for b.Loop() {
		began := time.Now()
		bench.open()
		restores = append(restores, time.Since(began))
		states := map[runtime.RunnerState]int{}
		all, err := bench.Runners(b.Context(), "")
		for _, r := range all {
			states[r.State]++
		}
		if err != nil || states[runtime.RunnerIdle] != runners-claimed || states[runtime.RunnerClaimed] != claimed {
			b.Fatal(states, err)
		}
		bench.stop()
	}
	b.ReportMetric(median(restores), "ms/restore(p50)")
}

// privateKiB returns the memory of a process that it shares with no other one.
func privateKiB(b *testing.B, pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] == "Private_Clean:" || f[0] == "Private_Dirty:" {
			n, _ := strconv.Atoi(f[1])
			sum += n
		}
	}
	return sum
}
