package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// drainage is what the API says of a draining, and of what it keeps from
// starting.
type drainage struct {
	Cluster struct {
		Draining *struct {
			Since                        time.Time
			Claimed, Leaving, Executions int
		}
	}
	Environment struct{ Pool struct{ Reason string } }
	PoolAlerts  []struct{ EnvironmentID, Reason string }
	Health      struct {
		Components []struct{ Name, Status, Message string }
	}
}

func (b bed) drainage(t testing.TB) drainage {
	t.Helper()
	var d drainage
	b.call(t, `{ cluster { draining { since claimed leaving executions } } environment(id: "shell") { pool { reason } }
		poolAlerts { environmentId reason } health { components { name status message } } }`, nil, &d)
	return d
}

// wantDrained waits until only what is held is left, and everything says why.
func (b bed) wantDrained(t testing.TB, claimed, executions int) drainage {
	t.Helper()
	var d drainage
	wait.For(t, "only what is held is left", func() bool {
		d = b.drainage(t)
		if d.Cluster.Draining == nil {
			t.Fatal("it doesn't drain")
		}
		now := *d.Cluster.Draining
		return now.Claimed == claimed && now.Leaving == 0 && now.Executions == executions
	})
	wait.For(t, "pool, alert and health say why", func() bool {
		d = b.drainage(t)
		return strings.Contains(d.Environment.Pool.Reason, "being drained") && len(d.PoolAlerts) > 0 && strings.Contains(d.PoolAlerts[0].Reason, "being drained")
	})
	told := ""
	for _, c := range d.Health.Components {
		if c.Name == "cluster" {
			told = c.Status + " " + c.Message
		}
	}
	if !strings.HasPrefix(told, "DEGRADED ") || !strings.Contains(told, "draining: ") {
		t.Errorf("health: %q", told)
	}
	return d
}

// wantNoClaim fails the test if somebody new gets a runner.
func (b bed) wantNoClaim(t testing.TB) {
	t.Helper()
	var e *client.Error
	err := b.Ask(t.Context(), `mutation { claimRunner(input: {environmentId: "shell", waitFor: 1}) { runner { id } } }`, nil, nil)
	if !errors.As(err, &e) || e.Extensions.Code != runtime.CodeNoRunnerAvailable || !e.Extensions.Retryable || !strings.Contains(e.Message, "being drained") {
		t.Errorf("a claim while it drains: %v", err)
	}
}

// TestE2EDrain drains a server on which a program runs, kills the server, and
// ends the draining: the program notices nothing, and nobody else gets a runner
// meanwhile.
func TestE2EDrain(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	start := func() *process {
		return serve(t, data, rockpool(t), "serve", "--data", data, "--alert-timeout", "1")
	}
	p := start()
	script, want := inHalves(2000)
	runner := p.claimLoosely(t, "shell")
	r := &reader{id: p.start(t, object{"runnerId": runner, "shell": script})}
	before := p.full(t, "shell", 2)

	gone := p.goneReasons(t)
	if out := p.works(t, "drain"); !strings.Contains(out, "1 claimed runner, 1 execution") {
		t.Errorf("drain: %s", out)
	}
	first := p.wantDrained(t, 1, 1)
	wait.For(t, "their end is reported", func() bool {
		told := gone()
		for id := range before {
			if _, ok := told[id]; id != runner && !ok {
				return false
			}
		}
		return true
	})
	for id, reason := range gone() {
		if _, was := before[id]; was && id != runner && reason != "DRAINED" || id == runner {
			t.Errorf("runner %s is gone: %s", id, reason)
		}
		delete(before, id)
	}
	if len(before) != 1 {
		t.Errorf("the end of these wasn't told: %v", before)
	}
	p.wantNoClaim(t)
	queued := p.evaluations(t, "shell", "PENDING")
	if !slices.ContainsFunc(queued, func(e evaluation) bool { return e.Type == "PLACE" }) {
		t.Errorf("queued: %+v", queued)
	}
	if out, errs, code := p.command(t, "", "drain", "--wait", "--timeout", "1s"); code != 124 || !strings.Contains(errs, "1 claimed runner, 1 execution left") || !strings.Contains(out, "1 claimed") {
		t.Errorf("drain --wait --timeout: %d %s%s", code, out, errs)
	}

	p.end(t, syscall.SIGKILL, false)
	p = start()
	again := p.wantDrained(t, 1, 1)
	if !again.Cluster.Draining.Since.Equal(first.Cluster.Draining.Since) {
		t.Errorf("it drains since %v, and was begun at %v", again.Cluster.Draining.Since, first.Cluster.Draining.Since)
	}
	p.wantNoClaim(t)
	if got := p.shell(t, runner, "echo more"); got.stream("STDOUT") != "more\n" {
		t.Errorf("what its holder starts: %+v", got)
	}
	p.wake(t, 1)
	if r.read(t.Context(), p.bed); r.got.String() != want || r.lost != 0 || r.end == nil || r.end.Outcome != "EXITED" {
		t.Errorf("%d bytes, %d lost, of %d; %+v", r.got.Len(), r.lost, len(want), r.end)
	}

	waiting := p.commandInBackground("drain", "--wait", "--json")
	wait.For(t, "it says what it waits for", func() bool { return strings.Contains(waiting.said(), "1 claimed runner left") })
	p.release(t, runner)
	code := waiting.ended(t)
	var last struct {
		Draining struct{ Claimed, Leaving, Executions *int }
	}
	if err := json.Unmarshal(waiting.out.Bytes(), &last); err != nil || code != 0 || last.Draining.Claimed == nil || *last.Draining.Claimed+*last.Draining.Leaving+*last.Draining.Executions != 0 {
		t.Errorf("drain --wait: %d %v %s", code, err, waiting.out.String())
	}
	p.works(t, "drain", "--off")
	if d := p.drainage(t); d.Cluster.Draining != nil {
		t.Errorf("it still drains: %+v", d.Cluster.Draining)
	}
	p.full(t, "shell", 2)
	p.works(t, "drain", "--off")
	for _, wrong := range [][]string{{"drain", "--off", "--wait"}, {"drain", "--timeout", "1s"}, {"drain", "--wait", "--timeout=-1s"}} {
		if _, errs, code := p.command(t, "", wrong...); code != cli.CodeOurs || errs == "" {
			t.Errorf("%q: %d %s", wrong, code, errs)
		}
	}
	p.finish(t)
}

// TestE2EKilledWhileItDrains kills the server while it is being drained: either
// it drains then or it doesn't, and what is held is spared each time.
func TestE2EKilledWhileItDrains(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	runner := p.claimLoosely(t, "shell")
	p.call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 6}) { created } }`, nil, nil)
	drained, not := 0, 0
	for i := range thorough(4, 8) {
		p.full(t, "shell", 6)
		answered, before := make(chan error, 1), p
		go func() {
			answered <- before.Ask(t.Context(), `mutation { drainCluster(input: {draining: true}) { cluster { kind } } }`, nil, nil)
		}()
		if i%2 == 0 { // while it is asked for
			atSomeMoment(5 * time.Millisecond)
		} else { // while the runners go
			err := <-answered
			if answered <- err; err != nil {
				t.Error(err)
			}
			atSomeMoment(7 * time.Millisecond)
		}
		p = p.killed(t)
		err := <-answered
		if d := p.drainage(t); d.Cluster.Draining == nil {
			if not++; err == nil {
				t.Error("it was told that it drains, and doesn't after a restart")
			}
		} else {
			drained++
			p.wantOnly(t, map[string]seen{runner: {}})
		}
		if got := p.shell(t, runner, "echo here"); got.stream("STDOUT") != "here\n" {
			t.Errorf("in what is held: %+v", got)
		}
		p.works(t, "drain", "--off")
	}
	t.Logf("%d kills came after it drained, %d before", drained, not)
	if drained == 0 {
		t.Error("all kills came too early, so this shows little")
	}
	p.finish(t)
}

// TestE2EDrainOfAnEmptyServerIsDoneAtOnce, and a claim that waits gets its runner
// when it ends.
func TestE2EDrainOfAnEmptyServerIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	if out := p.works(t, "drain", "--wait", "--timeout", "30s"); !strings.Contains(out, "nothing is left") {
		t.Errorf("drain --wait: %s", out)
	}
	claimed := make(chan string, 1)
	go func() {
		defer close(claimed) // also where the claim fails the test
		claimed <- p.claimLoosely(t, "shell")
	}()
	wait.For(t, "the claim waits", func() bool {
		for _, e := range p.evaluations(t, "shell", "PENDING") {
			if e.Priority == int(runtime.PriorityWaiting) {
				return true
			}
		}
		return false
	})
	p.works(t, "drain", "--off")
	if id := wait.Receive(t, claimed, "the claim's runner"); p.runnersOf(t, "shell")[id].State != "CLAIMED" {
		t.Errorf("%q isn't claimed", id)
	}
	p.finish(t)
}

// goneReasons collects why runners go from now on, as long as the server lives,
// and returns what tells them.
func (b bed) goneReasons(t testing.TB) func() map[string]string {
	t.Helper()
	var mu sync.Mutex // guards all
	all := map[string]string{}
	watching := make(chan struct{})
	go func() {
		first := sync.OnceFunc(func() { close(watching) })
		_ = b.Subscribe(t.Context(), client.Request{Query: `subscription { runnerEvents(environmentId: "shell") { runner { id state goneReason } } }`}, func(data json.RawMessage) error {
			first()
			var out struct{ RunnerEvents struct{ Runner seen } }
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

// A background is a command that goes on beside the test.
type background struct {
	mu   sync.Mutex // guards errs
	errs bytes.Buffer
	out  bytes.Buffer // to be read after its end
	code chan int
}

// Write takes in what it says to stderr.
func (c *background) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs.Write(text)
}

func (c *background) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errs.String()
}

func (c *background) ended(t testing.TB) int {
	t.Helper()
	return wait.Receive(t, c.code, "the command's end")
}

func (b bed) commandInBackground(args ...string) *background {
	c := &background{code: make(chan int, 1)}
	go func() { c.code <- execute(append(args, "--server", b.url), strings.NewReader(""), &c.out, c) }()
	return c
}
