package life

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// A DrainState is what the API shows of a drain and of the work that it holds back.
type DrainState struct {
	Cluster struct {
		Draining *struct {
			Since                        time.Time
			Claimed, Leaving, Executions int
		}
	}
	Environment struct{ Pool struct{ Reason string } }
	PoolAlerts  []struct{ EnvironmentID, Reason string }
	Activity    struct{ Draining bool }
	Health      struct {
		Components []struct{ Name, Status, Message string }
	}
}

// health returns a component's status and message.
func (d DrainState) health(part string) string {
	for _, c := range d.Health.Components {
		if c.Name == part {
			return c.Status + " " + c.Message
		}
	}
	return ""
}

// drainage returns the progress of the drain.
func drainage(t testing.TB, b bed.Bed) DrainState {
	t.Helper()
	var d DrainState
	b.Call(t, `{ cluster { draining { since claimed leaving executions } } environment(id: "shell") { pool { reason } }
		poolAlerts { environmentId reason } health { components { name status message } } activity { draining } }`, nil, &d)
	return d
}

// wantDrained waits until only claimed runners are left, and everything says why.
func wantDrained(t testing.TB, b bed.Bed, claimed, executions int) DrainState {
	t.Helper()
	var d DrainState
	wait.For(t, "only what is held is left", func() bool {
		d = drainage(t, b)
		if d.Cluster.Draining == nil {
			t.Fatal("it doesn't drain")
		}
		now := *d.Cluster.Draining
		return now.Claimed == claimed && now.Leaving == 0 && now.Executions == executions
	})
	wait.For(t, "the pool says why, no alert stands, and nothing is wrong", func() bool {
		d = drainage(t, b)
		return strings.Contains(d.Environment.Pool.Reason, "`rockpool drain --off`") && len(d.PoolAlerts) == 0 && strings.HasPrefix(d.health("pool shell"), "OK ") && strings.Contains(d.health("pool shell"), "drained")
	})
	if told := d.health("cluster"); !strings.HasPrefix(told, "OK draining: ") || !d.Activity.Draining {
		t.Errorf("health: %q; %+v", told, d.Activity)
	}
	return d
}

// wantNoClaim fails the test if a new claim gets a runner.
func wantNoClaim(t testing.TB, b bed.Bed) {
	t.Helper()
	var e *client.Error
	_, err := client.Claim(t.Context(), b, client.ClaimRunnerInput{EnvironmentId: "shell", WaitFor: new(1)})
	if !errors.As(err, &e) || e.Extensions.Code != runtime.CodeNoRunnerAvailable || !e.Extensions.Retryable || !strings.Contains(e.Message, "drained") {
		t.Errorf("a claim while it drains: got %v, want NO_RUNNER_AVAILABLE of a drained machine", err)
	}
}

// goneReasons collects the reasons of all runners' ends from now on, as long as the server runs.
// The returned function returns them.
func goneReasons(t testing.TB, b bed.Bed) func() map[string]string {
	t.Helper()
	var mu sync.Mutex // guards all
	all := map[string]string{}
	watching := make(chan struct{})
	go func() {
		first := sync.OnceFunc(func() { close(watching) })
		_ = b.Subscribe(t.Context(), client.Request{Query: `subscription { runnerEvents(environmentId: "shell") { runner { id state goneReason } } }`}, func(data json.RawMessage) error {
			first()
			var out struct{ RunnerEvents struct{ Runner bed.Seen } }
			if err := json.Unmarshal(data, &out); err != nil {
				return err
			}
			if r := out.RunnerEvents.Runner; r.State == "GONE" {
				mu.Lock()
				defer mu.Unlock()
				all[r.ID] = r.GoneReason
			}
			return nil
		})
	}()
	wait.Receive(t, watching, "the first event")
	return func() map[string]string {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(all)
	}
}

// A Background is a command that runs in the background of the test.
type Background struct {
	mu   sync.Mutex // guards errs
	errs bytes.Buffer
	Out  bytes.Buffer // valid after its end
	code chan int
}

// Write records what the command writes to stderr.
func (c *Background) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs.Write(text)
}

// Said returns what the command has written to stderr so far.
func (c *Background) Said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs.String()
}

// Ended waits for the command and returns its exit code.
func (c *Background) Ended(t testing.TB) int {
	t.Helper()
	return wait.Receive(t, c.code, "the command's end")
}

// commandInBackground starts a command that uses the server.
func commandInBackground(b bed.Bed, args ...string) *Background {
	c := &Background{code: make(chan int, 1)}
	go func() { c.code <- bed.RunCLI(append(args, "--server", b.Address), strings.NewReader(""), &c.Out, c) }()
	return c
}
