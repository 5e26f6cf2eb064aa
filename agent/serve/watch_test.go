package serve_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/agent"
)

// A fake clock shows exactly how late a limit can end an execution. Other tests use real processes.
func TestWatch(t *testing.T) {
	for _, test := range []struct {
		argv     []string
		limits   *agent.Limits
		cause    agent.Cause
		from, to time.Duration
	}{
		{[]string{"spin", "two cores"}, &agent.Limits{CPU: time.Second}, agent.CauseCPULimit, 500 * time.Millisecond, 550 * time.Millisecond}, // 100 ms of two cores
		{[]string{"spin", "two cores"}, &agent.Limits{CPU: 1010 * time.Millisecond}, agent.CauseCPULimit, 505 * time.Millisecond, 555 * time.Millisecond},
		{[]string{"spin", "two cores"}, &agent.Limits{CPU: 3 * time.Minute}, agent.CauseTimeLimit, time.Minute, time.Minute},
		{[]string{"spin", "0s"}, &agent.Limits{Processes: 2}, agent.CauseProcessLimit, 0, 50 * time.Millisecond},
		{[]string{"excessive"}, nil, agent.CauseMemoryLimit, 0, 100 * time.Millisecond},
		{[]string{"crowded"}, nil, agent.CauseProcessLimit, 0, 100 * time.Millisecond}, // the runner is full
	} {
		synctest.Test(t, func(t *testing.T) {
			waits := func(p *fakeProcess) { <-p.killed }
			f := newFixture(t, commands{"spin": waits, "crowded": waits, "excessive": waits})
			s := f.start(agent.Start{Argv: test.argv, Limits: test.limits, TimeLimit: time.Minute})
			if _, _, exit := f.follow(s, true); exit.Cause != test.cause || exit.Wall < test.from || exit.Wall > test.to {
				t.Errorf("%q with %+v: %+v", test.argv, test.limits, exit)
			}
			_ = s.Close()
			f.server.Close()
		})
	}
}
