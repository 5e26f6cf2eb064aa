package api

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

var errSeen = errors.New("seen")

// until follows a subscription until done accepts the value of its only field.
func until[T any](t *testing.T, b bed.Bed, subscription string, variables object, done func(T) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	err := b.Subscribe(ctx, client.Request{Query: subscription, Variables: variables}, func(data json.RawMessage) error {
		var field map[string]T
		if err := json.Unmarshal(data, &field); err != nil {
			return err
		}
		for _, value := range field {
			if done(value) {
				return errSeen
			}
		}
		return nil
	})
	if !errors.Is(err, errSeen) {
		t.Fatalf("%s: got %v, want %v", subscription, err, errSeen)
	}
}

// TestE2EPoolAlerts: a pool whose runners can't be started raises an alert with the reason, and
// resolves it once they start.
func TestE2EPoolAlerts(t *testing.T) {
	b := bed.Open(t)
	helper := filepath.Join(b.Data, "local", "bin", "rockpool-sandbox")
	if err := os.Rename(helper, helper+".away"); err != nil {
		t.Fatal(err)
	}
	restore := sync.OnceFunc(func() {
		if err := os.Rename(helper+".away", helper); err != nil {
			t.Error(err)
		}
	})
	defer restore()
	for _, maker := range bed.Makers(b.Data) { // no other sandbox can be started
		if err := syscall.Kill(maker, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	b.Put(t, object{"id": "short", "poolSize": 1})
	type alert struct {
		EnvironmentID, State, Reason string
		Since                        time.Time
		Idle, Size                   int
		Threshold                    float64
	}
	const subscription = `subscription($id: ID) { poolAlerts(environmentId: $id) { environmentId state since idle size threshold reason } }`
	var raised alert
	until(t, b, subscription, object{"id": "short"}, func(a alert) bool { raised = a; return a.State == "RAISED" })
	if raised.EnvironmentID != "short" || raised.Idle != 0 || raised.Size != 1 || raised.Threshold != 0.5 || raised.Reason == "" || raised.Since.IsZero() {
		t.Errorf("raised: %+v", raised)
	}
	var now struct {
		PoolAlerts []alert
		Health     struct {
			Status     string
			Components []struct{ Name, Status, Message string }
		}
	}
	b.Call(t, `{ poolAlerts { environmentId state since idle size threshold reason } health { status components { name status message } } }`, nil, &now)
	stands := func(a alert) bool { return a.EnvironmentID == "short" && a.Since.Equal(raised.Since) } // others may be raised too
	if !slices.ContainsFunc(now.PoolAlerts, stands) || now.Health.Status != "DEGRADED" {
		t.Errorf("now: %+v, raised %+v", now, raised)
	}
	until(t, b, subscription, nil, func(a alert) bool { return a.EnvironmentID == "short" && a.State != "RESOLVED" }) // it is raised, so it comes first

	restore()
	until(t, b, subscription, object{"id": "short"}, func(a alert) bool { raised = a; return a.State == "RESOLVED" })
	if raised.Idle != 1 || raised.Since.IsZero() {
		t.Errorf("resolved: %+v", raised)
	}
}

// TestE2ERunnerEvents: runners are visible from start to end. Their usage and the duration of each
// step are counted.
func TestE2ERunnerEvents(t *testing.T) {
	b := bed.Open(t)
	type event struct {
		Runner struct {
			ID, State, GoneReason string
			Claim                 *struct{ Epoch int }
		}
		At time.Time
	}
	b.Put(t, object{"id": "watched", "poolSize": 1, "resources": object{"memoryMiB": 64, "cpuMHz": 500}})
	subscription := `subscription { runnerEvents(environmentId: "watched") { at runner { id state goneReason claim { epoch } } } }`
	until(t, b, subscription, nil, func(e event) bool { return e.Runner.State == "IDLE" })

	states := map[string][]string{}
	claimed, gone := "", false
	until(t, b, subscription, nil, func(e event) bool {
		r := e.Runner
		states[r.ID] = append(states[r.ID], r.State)
		switch {
		case e.At.IsZero():
			t.Errorf("%+v", e)
		case r.State == "IDLE" && claimed == "":
			claimed = b.Claim(t, "watched")
		case r.State == "CLAIMED" && r.ID == claimed:
			if r.Claim == nil || r.Claim.Epoch != 1 {
				t.Errorf("claimed: %+v", e)
			}
			b.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": claimed}, nil)
		case r.State == "GONE" && r.ID == claimed:
			if r.GoneReason != "RELEASED" {
				t.Errorf("gone: %+v", e)
			}
			gone = true
		}
		return gone && len(states) > 1 // the refill may come after it
	})

	var out struct {
		Cluster struct {
			Kind     string
			Capacity struct{ CPUMHz, MemoryMiB, CPUMHzUsed, MemoryMiBUsed int64 }
		}
		Environment struct {
			StartDurations struct {
				Count                             int
				MinMs, P50Ms, P90Ms, P99Ms, MaxMs float64
			}
		}
	}
	b.Call(t, `{ cluster { kind capacity { cpuMHz memoryMiB cpuMHzUsed memoryMiBUsed } } environment(id: "watched") { startDurations { count minMs p50Ms p90Ms p99Ms maxMs } } }`, nil, &out)
	if c := out.Cluster; c.Kind != "local" || c.Capacity.CPUMHz < 500 || c.Capacity.MemoryMiB < 512 || c.Capacity.CPUMHzUsed < 500 || c.Capacity.MemoryMiBUsed < 64 {
		t.Errorf("%+v", c)
	}
	if d := out.Environment.StartDurations; d.Count < 1 || d.MinMs < 1 || d.P50Ms < d.MinMs || d.P90Ms < d.P50Ms || d.P99Ms < d.P90Ms || d.MaxMs < d.P99Ms {
		t.Errorf("%+v", d)
	}
}
