package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// Each way to end a command leaves its control group usable: the next commands start in the same
// group and run to their end. On some kernels a group of version 2 that was killed by its
// cgroup.kill isn't usable: each later command is killed.
func TestCommandsRunAfterAnEndedOne(t *testing.T) {
	loop := []string{"sh", "-c", "echo on; (setsid sleep 1000 &); while :; do :; done"}
	for name, first := range map[string]struct {
		start agent.Start
		end   func(*agent.Session) error // after its first output; nil means it ends on its own
		cause agent.Cause
	}{
		"a time limit":             {start: agent.Start{Argv: loop, TimeLimit: time.Second}, cause: agent.CauseTimeLimit},
		"a limit of CPU time":      {start: agent.Start{Argv: loop, Limits: &agent.Limits{CPU: time.Second}}, cause: agent.CauseCPULimit},
		"a limit of processes":     {start: agent.Start{Argv: []string{"perl", "-e", "while (1) { fork or sleep 1000 }"}, Limits: &agent.Limits{Processes: 20}}, cause: agent.CauseProcessLimit},
		"an output limit":          {start: agent.Start{Argv: []string{"sh", "-c", "yes & sleep 1000"}, OutputLimit: 1000}, cause: agent.CauseOutputLimit},
		"a kill":                   {start: agent.Start{Argv: loop}, end: func(s *agent.Session) error { return s.Kill(0) }, cause: agent.CauseKill},
		"a kill with grace":        {start: agent.Start{Argv: []string{"sh", "-c", "trap '' TERM; echo on; sleep 1000"}}, end: func(s *agent.Session) error { return s.Kill(10 * time.Millisecond) }, cause: agent.CauseKill},
		"signal KILL":              {start: agent.Start{Argv: loop}, end: func(s *agent.Session) error { return s.Signal("SIGKILL") }, cause: agent.CauseSelf},
		"an exit, leaving another": {start: agent.Start{Argv: []string{"sh", "-c", "setsid sleep 1000 & echo two"}}, cause: agent.CauseSelf},
		"a terminal":               {start: agent.Start{Argv: loop, Terminal: &agent.Size{Rows: 24, Columns: 80}}, end: func(s *agent.Session) error { return s.Kill(0) }, cause: agent.CauseKill},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 96, unifiedGroups)
			for round := range 3 {
				start := first.start
				start.Env = testEnv
				s, err := b.session(t, start)
				if err != nil {
					t.Fatal(err)
				}
				if first.end != nil {
					waitForOutput(t, s)
					if err := first.end(s); err != nil {
						t.Fatal(err)
					}
				}
				if r := b.finish(t, s); r.exit.Cause != first.cause {
					t.Fatalf("round %d: it ended by %s, not %s: %+v", round, r.exit.Cause, first.cause, r)
				}
				if left := b.left(t); left != "" {
					t.Errorf("round %d: left: %q, want \"\"", round, left)
				}
				for i := range 3 {
					want := fmt.Sprint(i, "\n")
					if r := b.run(t, "echo", fmt.Sprint(i)); r.stdout != want || r.exit.Code != 0 || r.exit.Signal != "" {
						t.Fatalf("round %d: command %d ended by %q with %d, output %q, want %q", round, i, r.exit.Signal, r.exit.Code, r.stdout, want)
					}
				}
			}
		})
	}
}

// A preloaded interpreter starts commands in the same groups.
func TestWarmCommandsRunAfterAnEndedOne(t *testing.T) {
	b := newBed(t, 96, "--zygote", unifiedGroups)
	if _, err := b.warm(t, testEnv); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		loop := agent.Start{Argv: []string{"python3", "-c", "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nwhile True: pass"}, TimeLimit: time.Second}
		if r, started := b.temperature(t, loop, ""); r.exit.Cause != agent.CauseTimeLimit || !started.Warm {
			t.Fatalf("round %d: it was started by %+v and ended by %+v", round, started, r)
		}
		for i := range 3 {
			want := fmt.Sprint(i, "\n")
			if r, started := b.temperature(t, agent.Start{Argv: []string{"python3", "-c", fmt.Sprintf("print(%d)", i)}}, ""); r.stdout != want || r.exit.Code != 0 || !started.Warm {
				t.Fatalf("round %d: command %d was started by %+v and ended by %+v, want %q", round, i, started, r, want)
			}
		}
	}
}

// Two calls that end a fork bomb at the same moment leave a usable group.
func TestTwoKillsOfAForkBomb(t *testing.T) {
	b := newBed(t, 96, unifiedGroups)
	for round := range 50 {
		s, err := b.session(t, agent.Start{Argv: []string{"perl", "-e", `$SIG{TERM} = "IGNORE"; $| = 1; print "on\n"; while (1) { fork }`}, Env: testEnv})
		if err != nil {
			t.Fatal(err)
		}
		waitForOutput(t, s)
		if err := errors.Join(s.Kill(10*time.Millisecond), s.Kill(0)); err != nil {
			t.Fatal(err)
		}
		if r := b.finish(t, s); r.exit.Cause != agent.CauseKill {
			t.Fatalf("round %d: %+v", round, r)
		}
		if r := b.run(t, "echo", "next"); r.stdout != "next\n" || r.exit.Signal != "" {
			t.Fatalf("round %d: the next command: %+v", round, r)
		}
	}
}
