package serve_test

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/test/wait"
)

// The response has the usage of the runner and of each running execution, but of none that has
// ended or never started.
func TestUsageListsRunningExecutions(t *testing.T) {
	f := newFixture(t, map[string]func(*fakeProcess){
		"wait": func(p *fakeProcess) { <-p.killed },
		"end":  func(*fakeProcess) {},
	})
	first, ended := f.start(agent.Start{ID: "b", Argv: []string{"wait"}}), f.start(agent.Start{ID: "e", Argv: []string{"end"}})
	f.start(agent.Start{ID: "a", Argv: []string{"wait"}})
	f.follow(ended, true)
	read := func() agent.Usage {
		usage, err := agent.ReadUsage(t.Context(), f.dial())
		if err != nil {
			t.Fatal(err)
		}
		return usage
	}
	got := read()
	if got.Runner != (agent.Used{User: time.Minute, Memory: 30 << 20, Processes: 4}) || len(got.Executions) != 2 {
		t.Fatalf("%+v", got)
	}
	want := agent.Used{User: time.Second, System: time.Second, Memory: 10 << 20, PeakMemory: 20 << 20, Processes: 2, PeakProcesses: 3}
	for _, id := range []string{"a", "b"} {
		if x := got.Executions[id]; x.Used != want || x.Wall < 0 {
			t.Errorf("%+v", x)
		}
	}
	if err := first.Kill(0); err != nil {
		t.Fatal(err)
	}
	f.follow(first, true)
	wait.For(t, "the one that was killed isn't measured any more", func() bool { return len(read().Executions) == 1 })
}
