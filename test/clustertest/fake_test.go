package clustertest

import (
	"bytes"
	goruntime "runtime"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/agent/serve"
	"github.com/rockpool/rockpool/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeIsACluster(t *testing.T) {
	Suite(t, runtime.Environment{Image: "fake", PoolSize: 1}, func(t *testing.T) runtime.Cluster {
		f := NewFake()
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return f
	})
}

// TestCloseOfAFakeWaitsForItsGoroutines closes a Fake with a starting runner, and with a program
// that takes a moment to end.
func TestCloseOfAFakeWaitsForItsGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, env := NewFake(), runtime.Environment{ID: "e"}
		busy := runtime.NewRunnerID()
		if err := f.Start(t.Context(), busy, env, runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		conn, err := f.Dial(t.Context(), busy)
		if err != nil {
			t.Fatal(err)
		}
		x, err := agent.StartExecution(t.Context(), conn, agent.Start{ID: "x", Argv: []string{"pace", "1000", "60"}})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		f.StartDelay(time.Hour)
		f.OnStart(func(id runtime.RunnerID) error {
			t.Errorf("runner %s started after the end", id)
			return nil
		})
		if err := f.Start(t.Context(), runtime.NewRunnerID(), env, runtime.PriorityRefill); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stacks := make([]byte, 1<<20)
		stacks = stacks[:goruntime.Stack(stacks, true)]
		for _, left := range []string{"clustertest.(*Fake).Start", "clustertest.(*programs).Start"} {
			if bytes.Contains(stacks, []byte(left)) {
				t.Errorf("a goroutine of %s is left", left)
			}
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestFakeProgramsReportTheirSignal ends many programs concurrently. None may report the code that
// its function returns afterwards. Only the race detector makes it fail.
func TestFakeProgramsReportTheirSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := newPrograms()
		var running []serve.Process
		for range 4000 {
			p, err := host.Start(agent.Start{Argv: []string{"sleep", "1000"}})
			if err != nil {
				t.Fatal(err)
			}
			running = append(running, p)
		}
		synctest.Wait() // all sleep
		others := 0
		for _, p := range running {
			p.Kill(0)
			if p.Wait().Signal != "SIGKILL" {
				others++
			}
		}
		if others > 0 {
			t.Errorf("%d of %d ended otherwise", others, len(running))
		}
	})
}
