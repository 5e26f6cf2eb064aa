package nomad

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/nomadtest"
	"github.com/rockpool/rockpool/runtime"
)

// What Nomad costs, on each driver: go test ./nomad -run TestFigures -v -figures
func TestFigures(t *testing.T) {
	if !*figures {
		return // a measurement, not a check
	}
	for driver, n := range map[Driver]*nomadtest.Shared{RawExec: &raw, Exec: &chroots, Docker: &container} {
		t.Run(string(driver), func(t *testing.T) {
			settings := config(t, n.Nomad(t), driver)
			settings.NoNetworkMode = "host"
			b := bed{Cluster: start(t, settings), t: t, n: n.Nomad(t), env: rawEnvironment()}
			b.env.ID, b.env.Revision, b.env.RunnerRevision = "a", 1, 1
			if driver != RawExec {
				b.env.Isolation = runtime.IsolationCluster
			}
			if driver == Docker {
				b.env.Image = nomadtest.Image
			}
			if err := b.PutEnvironment(t.Context(), b.env); err != nil {
				t.Fatal(err)
			}
			var ready, claims, outputs []time.Duration
			var last runtime.RunnerID
			for range 10 {
				began := time.Now()
				last = b.idle()
				ready = append(ready, time.Since(began))
			}
			for epoch := range 200 {
				began := time.Now()
				b.mark(last, epoch+1)
				claims = append(claims, time.Since(began))
			}
			for range 200 {
				outputs = append(outputs, b.firstOutput(last))
			}
			began := time.Now()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { b.idle() })
			}
			all.Wait()
			t.Logf("%s: start to ready %s; claim %s; start to first output %s; 20 at once: %.1f/s ready",
				driver, quantiles(ready), quantiles(claims), quantiles(outputs), 20/time.Since(began).Seconds())
		})
	}
}

// firstOutput is how long a command takes until its first byte is here.
func (b bed) firstOutput(id runtime.RunnerID) time.Duration {
	b.t.Helper()
	began := time.Now()
	conn, err := b.Dial(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	session, err := agent.StartExecution(context.Background(), conn, agent.Start{
		ID: string(runtime.NewExecutionID()), Argv: []string{"echo", "hi"}, Env: []string{"PATH=/usr/bin:/bin"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	defer session.Close()
	var first time.Duration
	for {
		event, err := session.Next()
		if err != nil {
			b.t.Fatal(err)
		}
		switch event.Kind {
		case agent.KindOutput:
			first = time.Since(began)
			_ = session.Ack(event.Offset + int64(len(event.Data)))
		case agent.KindExited:
			_ = session.Settled()
			return first
		}
	}
}

func quantiles(all []time.Duration) string {
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("p50 %.1f p99 %.1f ms", ms(all[len(all)/2]), ms(all[len(all)*99/100]))
}
