package life

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// startedExecution says how an execution was started.
type startedExecution struct {
	Execution struct {
		StartedWarm *bool
		ColdReason  *string
		Usage       struct{ PeakProcesses *int }
		Timestamps  struct{ QueuedAt, FirstOutputAt time.Time }
	}
}

// TestE2EWarmInterpreter: a runner of an environment with an interpreter starts python commands
// from it, also concurrently. Each execution reports how it was started. The pool's reason names a
// module that can't be loaded.
func TestE2EWarmInterpreter(t *testing.T) {
	b := bed.Open(t)
	modules := []string{"json", "decimal"}
	if more := os.Getenv("ROCKPOOL_WARM_MODULES"); more != "" { // for measurements
		modules = strings.Split(more, ",")
	}
	b.Put(t, map[string]any{"id": "warm", "poolSize": 1, "warm": map[string]any{"interpreter": "PYTHON", "modules": modules}})
	runner := b.Claim(t, "warm")
	how := func(command ...string) (startedExecution, string) {
		t.Helper()
		id := b.Start(t, map[string]any{"runnerId": runner, "command": command})
		result := b.Await(t, id)
		var s startedExecution
		b.Call(t, `query($id: ID!) { execution(id: $id) { startedWarm coldReason usage { peakProcesses } timestamps { queuedAt firstOutputAt } } }`, map[string]any{"id": id}, &s)
		return s, result.Stream("STDOUT")
	}
	var loaded struct {
		Runner struct{ Loaded *runtime.Loaded }
	}
	b.Call(t, `query($id: ID!) { runner(id: $id) { loaded { version memory } } }`, map[string]any{"id": runner}, &loaded)
	if l := loaded.Runner.Loaded; l == nil || !strings.HasPrefix(l.Version, "3.") || l.Memory < 1<<20 {
		t.Errorf("it has loaded %+v", l)
	}
	for range 3 {
		s, out := how("python3", "-c", "print(6*7)")
		if s.Execution.StartedWarm == nil || !*s.Execution.StartedWarm || s.Execution.ColdReason != nil || out != "42\n" {
			reason := s.Execution.ColdReason
			if reason == nil {
				reason = new("none")
			}
			t.Fatalf("it printed %q; why it was started cold: %s", out, *reason)
		}
		if p := s.Execution.Usage.PeakProcesses; p != nil && *p > 1 {
			t.Errorf("%d processes: the zygote counts, too", *p)
		}
	}
	s, _ := how("python3", "-B", "-c", "1")
	if s.Execution.StartedWarm == nil || *s.Execution.StartedWarm || s.Execution.ColdReason == nil || !strings.Contains(*s.Execution.ColdReason, "-B") {
		t.Errorf("started %+v", s.Execution)
	}
	var ids []string
	for range 4 { // more than there are cgroups for one command each
		ids = append(ids, b.Start(t, map[string]any{"runnerId": runner, "command": []string{"python3", "-c", "import time; time.sleep(.3); print(open('/proc/self/cgroup').read() != '')"}}))
	}
	for _, id := range ids {
		if r := b.Await(t, id); r.Stream("STDOUT") != "True\n" {
			t.Errorf("%+v", r)
		}
		var s startedExecution
		b.Call(t, `query($id: ID!) { execution(id: $id) { startedWarm coldReason } }`, map[string]any{"id": id}, &s)
		if s.Execution.StartedWarm == nil || !*s.Execution.StartedWarm {
			t.Errorf("started %+v", s.Execution)
		}
	}
	if os.Getenv("ROCKPOOL_WARM_MODULES") != "" {
		measure(t, how)
	}
}

// TestE2EWarmInterpreterThatCannotBeLoaded is named in the pool's reason.
func TestE2EWarmInterpreterThatCannotBeLoaded(t *testing.T) {
	b := bed.Open(t)
	for name, test := range map[string]struct {
		modules []string
		path    string
		says    []string
	}{
		"no-module":      {[]string{"json", "nosuchmodule"}, "/usr/bin", []string{"warm.modules", "nosuchmodule", "ModuleNotFoundError"}},
		"no-interpreter": {nil, "/nowhere", []string{"warm.interpreter", "python3", "isn't in the runner's PATH"}},
	} {
		t.Run(name, func(t *testing.T) {
			b.Put(t, map[string]any{
				"id": name, "poolSize": 1, "warm": map[string]any{"interpreter": "PYTHON", "modules": test.modules},
				"variables": []map[string]any{{"name": "PATH", "value": test.path}},
			})
			wait.For(t, "the pool's reason says it", func() bool {
				var pool struct {
					Environment struct{ Pool struct{ Reason *string } }
				}
				b.Call(t, `query($id: ID!) { environment(id: $id) { pool { reason } } }`, map[string]any{"id": name}, &pool)
				reason := pool.Environment.Pool.Reason
				return reason != nil && !slices.ContainsFunc(test.says, func(part string) bool { return !strings.Contains(*reason, part) })
			})
		})
	}
}

// TestE2EWarmInterpretersOutliveTheServer: runners that the next server adopts still have their
// interpreter, claimed and idle ones.
func TestE2EWarmInterpretersOutliveTheServer(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	p.Call(t, `mutation { putEnvironment(input: {id: "warm", poolSize: 1, warm: {interpreter: PYTHON, modules: ["decimal"]}}) { created } }`, nil, nil)
	claimed := p.ClaimUnreleased(t, "warm")
	const code = "import sys; print('decimal' in sys.modules)"
	wantWarm := func(id string) {
		t.Helper()
		var s startedExecution
		if got := p.Await(t, id); got.Stream("STDOUT") != "True\n" {
			t.Errorf("it printed %q", got.Stream("STDOUT"))
		}
		p.Call(t, `query($id: ID!) { execution(id: $id) { startedWarm coldReason } }`, map[string]any{"id": id}, &s)
		if s.Execution.StartedWarm == nil || !*s.Execution.StartedWarm || s.Execution.ColdReason != nil {
			t.Errorf("started %+v", s.Execution)
		}
	}
	start := func(runner, code string) string {
		t.Helper()
		return p.Start(t, map[string]any{"runnerId": runner, "command": []string{"python3", "-c", code}})
	}
	before := start(claimed, code)
	wantWarm(before)
	p.Full(t, "warm", 1)
	during := start(claimed, "import subprocess; subprocess.run(['sleep', '1000']); "+code)
	wait.For(t, "it runs", func() bool { return len(bed.Running(p.Cgroups, "sleep")) == 1 })
	p = p.Killed(t)
	p.Wake(t, 1)
	for _, id := range []string{before, during, start(claimed, code), start(p.ClaimUnreleased(t, "warm"), code)} {
		wantWarm(id)
	}
	p.Finish(t)
}

// measure logs the time until the first output, warm and cold. It runs the commands in sequence,
// with a pause between them.
func measure(t *testing.T, how func(command ...string) (startedExecution, string)) {
	code := "import os, " + os.Getenv("ROCKPOOL_WARM_MODULES") + "; print(1, flush=True); os._exit(0)"
	for _, pause := range []time.Duration{0, 500 * time.Millisecond} {
		for _, command := range [][]string{{"python3", "-c", code}, {"python3", "-B", "-c", code}, {"python3", "-B", "-c", "print(1)"}, {"echo", "1"}} {
			var took []time.Duration
			for range 20 {
				time.Sleep(pause)
				s, _ := how(command...)
				took = append(took, s.Execution.Timestamps.FirstOutputAt.Sub(s.Execution.Timestamps.QueuedAt))
			}
			slices.Sort(took)
			t.Logf("%v apart, %.40q: until its first output: p50 %v, least %v, most %v", pause, command, took[10], took[0], took[19])
		}
	}
}
