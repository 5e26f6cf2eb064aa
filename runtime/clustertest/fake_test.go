package clustertest

import (
	"testing"
	"testing/synctest"

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

// TestFakesProgramsEndByTheirSignal ends many programs that notice it at once: none
// has the code that its function then returns. It takes the race detector to fail.
func TestFakesProgramsEndByTheirSignal(t *testing.T) {
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
