package main

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// The usage of a running command is reported separately from another one's, without control groups.
// Local's TestLiveUsage tests groups.
func TestUsageOfRunningCommands(t *testing.T) {
	b := newBed(t, 0)
	session := func(id, script string) *agent.Session {
		s, err := b.session(t, agent.Start{ID: id, Argv: []string{"perl", "-e", script}, Env: testEnv, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	// Its child holds the memory. Each prints when it holds everything, and ends with its stdin.
	holds := session("holds", `$| = 1; if (!fork) { $x = "x" x 100_000_000; print "on\n"; <STDIN>; exit } wait`)
	spins := session("spins", `$| = 1; alarm 600; 1 while do { @t = times; $t[0] + $t[1] < 0.5 }; print "on\n"; <STDIN>`)
	defer holds.Close()
	defer spins.Close()
	waitForOutput(t, holds)
	waitForOutput(t, spins)
	usage, err := agent.ReadUsage(t.Context(), b.dial(t))
	if err != nil || len(usage.Executions) != 2 {
		t.Fatalf("%+v: %v", usage, err)
	}
	h, s := usage.Executions["holds"], usage.Executions["spins"]
	if h.Memory < 100_000_000 || h.Processes != 2 || s.User+s.System < 450*time.Millisecond {
		t.Errorf("holds: %+v, spins: %+v", h, s)
	}
	if h.PeakMemory != 0 || h.PeakProcesses != 0 || h.Memory > 300<<20 || h.Wall <= 0 {
		t.Errorf("holds: %+v", h)
	}
	if s.Memory <= 0 || s.Memory > 90_000_000 || s.Processes != 1 || s.User+s.System > time.Minute {
		t.Errorf("spins: %+v", s)
	}
	if r := usage.Runner; r.Memory < h.Memory || r.Processes < 3 || r.User+r.System < s.User+s.System {
		t.Errorf("the runner: %+v", r)
	}
	for _, x := range []*agent.Session{holds, spins} {
		if err := x.CloseStdin(); err != nil {
			t.Fatal(err)
		}
		b.finish(t, x)
	}
	usage, err = agent.ReadUsage(t.Context(), b.dial(t))
	if err != nil || len(usage.Executions) != 0 || usage.Runner.User+usage.Runner.System < s.User+s.System {
		t.Errorf("after their end: %+v, %v", usage, err)
	}
}
