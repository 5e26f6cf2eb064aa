package local

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/local/runner"
	"github.com/rockpool/rockpool/local/scheduler"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/fairqueue"
	"github.com/rockpool/rockpool/runtime/health"
)

// known returns a cluster without a machine that knows one runner, "a", in this state.
func known(t *testing.T, state runtime.RunnerState) (*Cluster, *memoryStore, *entry) {
	t.Helper()
	store, logger := newStore(), zap.NewNop()
	c := &Cluster{
		config: Config{Store: store, Config: host.Config{Logger: logger}}, starts: fairqueue.NewLimiter(1), problems: health.NewProblems(logger),
		entries: map[runtime.RunnerID]*entry{}, leaks: map[runtime.RunnerID]bool{},
	}
	machine := runtime.Resources{CPUMHz: 1000, MemoryMiB: 1024, Processes: 100, WorkspaceMiB: 100}
	var err error
	c.scheduler, err = scheduler.New(scheduler.Config{Logger: logger, Machine: machine, Changed: func(runtime.EnvironmentID) {}})
	if err != nil {
		t.Fatal(err)
	}
	e := c.newEntry(runtime.Runner{ID: "a", Environment: hostEnvironment(), State: state, CreatedAt: time.Now()}, runtime.PriorityRefill, runner.Record{})
	close(e.recorded)
	c.entries["a"], e.started = e, true
	if err := c.put(t.Context(), e.info, runner.Record{}); err != nil {
		t.Fatal(err)
	}
	return c, store, e
}

// A runner that is GONE keeps its record and its entry while its removal fails: a repeated Remove must find it.
func TestOnlyARemovedRunnerIsForgotten(t *testing.T) {
	c, store, e := known(t, runtime.RunnerIdle)
	for _, test := range []struct {
		name   string
		forget bool
		status runner.Status
		known  bool
	}{
		{"ended: known", false, runner.Status{State: runtime.RunnerGone}, true},
		{"Remove was called, and the removal fails: known", true, runner.Status{State: runtime.RunnerGone, Record: runner.Record{Leak: "busy"}}, true},
		{"removed, and not to be forgotten: known", false, runner.Status{State: runtime.RunnerGone, Removed: true}, true},
		{"removed, and to be forgotten: unknown", true, runner.Status{State: runtime.RunnerGone, Removed: true}, false},
	} {
		e.forget = test.forget
		if err := c.save(t.Context(), e, test.status); err != nil {
			t.Fatal(err)
		}
		_, stored := store.runners["a"]
		if listed := c.entries["a"] != nil; listed != test.known || stored != test.known || c.leaks["a"] != (test.status.Leak != "") {
			t.Errorf("%s: listed %v, stored %v, leaks %v", test.name, listed, stored, c.leaks)
		}
	}
}

// The end of a runner that was just stopped isn't in its entry yet.
func TestStoppedRunnerIsGone(t *testing.T) {
	c, store, e := known(t, runtime.RunnerIdle)
	e.runner.Stop(runner.Exit{Reason: runtime.GoneDrained})
	if err := c.Mark(t.Context(), "a", runtime.Claim{Epoch: 1, Key: "k", ClaimedAt: time.Now()}); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("Mark: got %v, want %s", err, runtime.CodeRunnerGone)
	}
	if store.runners["a"].runner.Claim.Held() || e.info.Claim.Held() {
		t.Error("its claim was stored")
	}
	if _, err := c.Dial(t.Context(), "a"); runtime.CodeOf(err) != runtime.CodeRunnerGone {
		t.Errorf("Dial: got %v, want %s", err, runtime.CodeRunnerGone)
	}
}

// A repeated Start doesn't register a runner whose ended job the scheduler has forgotten.
func TestStartOfALedRunnerRegistersNothing(t *testing.T) {
	c, _, e := known(t, runtime.RunnerGone)
	if err := c.joinStart(t.Context(), e, runtime.PriorityWaiting); err != nil {
		t.Fatal(err)
	}
	if all, _ := c.scheduler.Evaluations(runtime.EvaluationFilter{}); len(all) > 0 {
		t.Errorf("evaluations %+v", all)
	}
}
