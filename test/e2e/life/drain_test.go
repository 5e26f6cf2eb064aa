package life

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EDrain drains a server on which a program runs, kills the server, and ends the drain. The
// program isn't affected, and nobody else gets a runner meanwhile.
func TestE2EDrain(t *testing.T) {
	t.Parallel()
	data := bed.DataDir(t)
	start := func() *bed.Process {
		return bed.Serve(t, data, bed.Rockpool(t), "serve", "--data", data, "--alert-timeout", "1")
	}
	p := start()
	script, want := bed.InHalves(2000)
	runner := p.ClaimUnreleased(t, "shell")
	r := &bed.Reader{ID: p.Start(t, object{"runnerId": runner, "shell": script})}
	before := p.Full(t, "shell", 2)

	gone := goneReasons(t, p.Bed)
	if out := p.Works(t, "drain"); !strings.Contains(out, "1 claimed runner, 1 execution") {
		t.Errorf("drain: %s", out)
	}
	first := wantDrained(t, p.Bed, 1, 1)
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
		t.Errorf("these runners ended without an event: %v", before)
	}
	wantNoClaim(t, p.Bed)
	queued := p.Evaluations(t, "shell", "PENDING")
	if !slices.ContainsFunc(queued, func(e bed.Evaluation) bool { return e.Type == "PLACE" }) {
		t.Errorf("queued: %+v", queued)
	}
	if out, errs, code := p.Command(t, "", "drain", "--wait", "--timeout", "1s"); code != 124 || !strings.Contains(errs, "1 claimed runner, 1 execution left") || !strings.Contains(out, "1 claimed") {
		t.Errorf("drain --wait --timeout: %d %s%s", code, out, errs)
	}

	p.End(t, syscall.SIGKILL, false)
	p = start()
	again := wantDrained(t, p.Bed, 1, 1)
	if !again.Cluster.Draining.Since.Equal(first.Cluster.Draining.Since) {
		t.Errorf("it drains since %v, and was begun at %v", again.Cluster.Draining.Since, first.Cluster.Draining.Since)
	}
	wantNoClaim(t, p.Bed)
	if got := p.Shell(t, runner, "echo more"); got.Stream("STDOUT") != "more\n" {
		t.Errorf("what its holder starts: %+v", got)
	}
	p.Wake(t, 1)
	if r.Read(t.Context(), p.Bed); r.Got.String() != want || r.Lost != 0 || r.End == nil || r.End.Outcome != "EXITED" {
		t.Errorf("%d bytes, %d lost, of %d; %+v", r.Got.Len(), r.Lost, len(want), r.End)
	}

	waiting := commandInBackground(p.Bed, "drain", "--wait", "--json")
	wait.For(t, "it says what it waits for", func() bool { return strings.Contains(waiting.Said(), "1 claimed runner left") })
	p.Release(t, runner)
	code := waiting.Ended(t)
	var last struct {
		Draining struct{ Claimed, Leaving, Executions *int }
	}
	if err := json.Unmarshal(waiting.Out.Bytes(), &last); err != nil || code != 0 || last.Draining.Claimed == nil || *last.Draining.Claimed+*last.Draining.Leaving+*last.Draining.Executions != 0 {
		t.Errorf("drain --wait: %d %v %s", code, err, waiting.Out.String())
	}
	p.Works(t, "drain", "--off")
	if d := drainage(t, p.Bed); d.Cluster.Draining != nil {
		t.Errorf("it still drains: %+v", d.Cluster.Draining)
	}
	p.Full(t, "shell", 2)
	p.Works(t, "drain", "--off")
	for _, wrong := range [][]string{{"drain", "--off", "--wait"}, {"drain", "--timeout", "1s"}, {"drain", "--wait", "--timeout=-1s"}} {
		if _, errs, code := p.Command(t, "", wrong...); code != command.CodeOurs || errs == "" {
			t.Errorf("%q: %d %s", wrong, code, errs)
		}
	}
	p.Finish(t)
}

// TestE2EKilledWhileItDrains kills the server while a drain begins. Afterwards the server drains or
// doesn't; claimed runners survive in both cases.
func TestE2EKilledWhileItDrains(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	runner := p.ClaimUnreleased(t, "shell")
	p.Call(t, `mutation { putEnvironment(input: {id: "shell", poolSize: 6}) { created } }`, nil, nil)
	drained, not := 0, 0
	for i := range bed.Thorough(4, 8) {
		p.Full(t, "shell", 6)
		answered, before := make(chan error, 1), p
		go func() {
			answered <- before.Do(t.Context(), `mutation { drainCluster(input: {draining: true}) { cluster { kind } } }`, nil, nil)
		}()
		if i%2 == 0 { // during the request
			bed.AtSomeMoment(5 * time.Millisecond)
		} else { // while runners are removed
			err := <-answered
			if answered <- err; err != nil {
				t.Error(err)
			}
			bed.AtSomeMoment(7 * time.Millisecond)
		}
		p = p.Killed(t)
		err := <-answered
		if d := drainage(t, p.Bed); d.Cluster.Draining == nil {
			if not++; err == nil {
				t.Error("drainCluster succeeded, but the server doesn't drain after a restart")
			}
		} else {
			drained++
			wantOnly(t, p, map[string]bed.Seen{runner: {}})
		}
		if got := p.Shell(t, runner, "echo here"); got.Stream("STDOUT") != "here\n" {
			t.Errorf("in what is held: %+v", got)
		}
		p.Works(t, "drain", "--off")
	}
	t.Logf("%d kills came after it drained, %d before", drained, not)
	if drained == 0 {
		t.Error("every kill was before the drain began, so the test shows nothing")
	}
	p.Finish(t)
}

// TestE2EDrainOfAnEmptyServerIsImmediate. A waiting claim gets its runner when the drain
// ends.
func TestE2EDrainOfAnEmptyServerIsImmediate(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	if out := p.Works(t, "drain", "--wait", "--timeout", wait.Limit.String()); !strings.Contains(out, "nothing is left") {
		t.Errorf("drain --wait: %s", out)
	}
	claimed := make(chan string, 1)
	go func() {
		defer close(claimed) // even if the claim fails the test
		claimed <- p.ClaimUnreleased(t, "shell")
	}()
	wait.For(t, "the claim waits", func() bool {
		for _, e := range p.Evaluations(t, "shell", "PENDING") {
			if e.Priority == int(runtime.PriorityWaiting) {
				return true
			}
		}
		return false
	})
	p.Works(t, "drain", "--off")
	if id := wait.Receive(t, claimed, "the claim's runner"); p.RunnersOf(t, "shell")[id].State != "CLAIMED" {
		t.Errorf("%q isn't claimed", id)
	}
	p.Finish(t)
}
