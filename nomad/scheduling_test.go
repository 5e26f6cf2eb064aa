package nomad

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// Nomad's scheduling of this server's runners is reported, and nothing of other jobs.
func TestSchedulingIsReported(t *testing.T) {
	b := newBed(t)
	idle := b.idle()
	b.toldRunning(idle)
	big := b.env
	big.ID, big.Resources.MemoryMiB = "big", 1<<20
	if err := b.PutEnvironment(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	blocked := runtime.NewRunnerID()
	if err := b.Start(t.Context(), blocked, big, runtime.PriorityRefill); err != nil {
		t.Fatal(err)
	}
	evaluations := func(f runtime.EvaluationFilter, enough func(page []runtime.Evaluation) bool) []runtime.Evaluation {
		t.Helper()
		var page []runtime.Evaluation
		wait.For(t, fmt.Sprintf("enough evaluations by %+v", f), func() bool {
			var err error
			if page, _, err = b.Evaluations(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			return enough(page)
		})
		return page
	}
	some := func(page []runtime.Evaluation) bool { return len(page) > 0 }
	waiting := evaluations(runtime.EvaluationFilter{EnvironmentID: "big", Statuses: []runtime.EvaluationStatus{runtime.EvaluationBlocked}}, some)[0]
	if waiting.RunnerID != blocked || waiting.Trigger != runtime.TriggerNoRoom || waiting.Type != runtime.EvaluationPlace ||
		!waiting.EndedAt.IsZero() || waiting.Priority != 50 || !strings.Contains(waiting.Reason, "memory exhausted on 1 node") ||
		!strings.HasPrefix(waiting.URL, b.n.Address()+"/ui/evaluations?currentEval=") {
		t.Errorf("blocked: %+v", waiting)
	}
	before := evaluations(runtime.EvaluationFilter{RunnerID: blocked, Statuses: []runtime.EvaluationStatus{runtime.EvaluationComplete}}, some)[0]
	if before.ID != waiting.PreviousID || before.NextID != waiting.ID || before.Trigger != runtime.TriggerRegister || before.Queued != 1 || before.EndedAt.IsZero() {
		t.Errorf("the one before: %+v", before)
	}
	all := evaluations(runtime.EvaluationFilter{}, func(page []runtime.Evaluation) bool { return len(page) >= 3 })
	if !slices.IsSortedFunc(all, func(a, b runtime.Evaluation) int { return strings.Compare(string(b.ID), string(a.ID)) }) {
		t.Errorf("the youngest isn't first: %+v", all)
	}
	page, total, err := b.Evaluations(t.Context(), runtime.EvaluationFilter{After: string(all[0].ID), Limit: 1})
	if err != nil || total != len(all) || len(page) != 1 || page[0].ID != all[1].ID {
		t.Errorf("a page: %+v of %d, %v", page, total, err)
	}
	if r, _ := b.find(idle); r.URL != b.n.Address()+"/ui/jobs/"+b.names().Runner(idle)+"@pool" {
		t.Errorf("its page is at %q", r.URL)
	}

	allocation := func(id runtime.RunnerID, status runtime.AllocationStatus) runtime.Allocation {
		t.Helper()
		var page []runtime.Allocation
		wait.For(t, fmt.Sprintf("the allocation of %s is %s", id, status), func() bool {
			if page, _, err = b.Allocations(t.Context(), runtime.AllocationFilter{RunnerID: id}); err != nil {
				t.Fatal(err)
			}
			return len(page) == 1 && page[0].Status == status
		})
		return page[0]
	}
	placed := allocation(idle, runtime.AllocationRunning)
	if placed.EnvironmentID != "a" || placed.Desired != runtime.DesiredRun || placed.RunningAt.Before(placed.CreatedAt) || !placed.EndedAt.IsZero() ||
		placed.Resources.MemoryMiB != b.env.Resources.MemoryMiB || placed.EvaluationID == "" {
		t.Errorf("placed: %+v", placed)
	}
	if err := b.Remove(t.Context(), idle); err != nil {
		t.Fatal(err)
	}
	if removed := allocation(idle, runtime.AllocationComplete); removed.Desired != runtime.DesiredStop || removed.EndedAt.IsZero() || removed.EnvironmentID != "a" {
		t.Errorf("removed: %+v", removed)
	}
	stopping := evaluations(runtime.EvaluationFilter{RunnerID: idle, EnvironmentID: "a"}, func(page []runtime.Evaluation) bool {
		return len(page) > 0 && page[0].Type == runtime.EvaluationStop
	})
	if stopping[0].Trigger != runtime.TriggerDeregister {
		t.Errorf("%+v", stopping)
	}
}

// Callers within a second share one answer.
func TestSchedulingIsReadOnceForAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still meanwhile
		var c Cluster
		c.group = &connection.Group{}
		c.refresher.synced = closed()
		c.schedule.last.Store(&scheduleSnapshot{at: time.Now(), evaluations: []runtime.Evaluation{{ID: "1"}}})
		if page, total, err := c.Evaluations(t.Context(), runtime.EvaluationFilter{}); err != nil || total != 1 || len(page) != 1 {
			t.Errorf("%v, %d, %v", page, total, err)
		}
	})
}

func TestAllocationsAreReportedWithoutNomadsTexts(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	c := &Cluster{config: Config{Jobs: job.Config{Prefix: "p"}}}
	c.runners.entries = map[runtime.RunnerID]*entry{"x": {runner: runtime.Runner{ID: "x", Environment: runtime.Environment{ID: "a"}}}}
	stub := func(status, desired string, events ...*api.TaskEvent) *api.AllocationListStub {
		return &api.AllocationListStub{
			ID: "1", JobID: c.names().Runner("x"), ClientStatus: status, DesiredStatus: desired, ModifyTime: at.UnixNano(),
			TaskStates: map[string]*api.TaskState{"runner": {Events: events}},
		}
	}
	failed := &api.TaskEvent{Type: api.TaskDriverFailure, DisplayMessage: "/opt/nomad/secret", Time: at.UnixNano()}
	for _, test := range []struct {
		stub    *api.AllocationListStub
		status  runtime.AllocationStatus
		message string
		ended   bool
	}{
		{stub("pending", "run"), runtime.AllocationPending, "", false},
		{stub("running", "run"), runtime.AllocationPending, "", false}, // its agent didn't answer
		{stub("complete", "stop"), runtime.AllocationComplete, "", true},
		{stub("failed", "run", failed), runtime.AllocationFailed, "its driver couldn't start it; see the server's log", true},
		{stub("failed", "run"), runtime.AllocationFailed, "its task ended", true},
		{stub("lost", "stop"), runtime.AllocationLost, "its node was lost", true},
		{stub("unknown", "run"), runtime.AllocationLost, "its node is disconnected", false},
	} {
		c.runners.entries["x"].allocations = []*api.AllocationListStub{test.stub}
		got := c.scheduled(nil).allocations
		if len(got) != 1 || got[0].Status != test.status || got[0].Message != test.message || got[0].EndedAt.IsZero() == test.ended {
			t.Errorf("%s: %+v", test.stub.ClientStatus, got)
		}
	}
	// Nomad forgets a removed runner's allocations with its job; the server keeps them.
	for _, last := range []struct{ client, told string }{{"running", "COMPLETE"}, {"failed", "FAILED"}, {"unknown", "LOST"}} {
		e := &entry{runner: runtime.Runner{ID: "y", Environment: runtime.Environment{ID: "b"}}}
		e.allocations = []*api.AllocationListStub{stub(last.client, "run")}
		c.runners.entries = nil
		c.runners.remember(e)
		got := c.scheduled(nil).allocations
		if len(got) != 1 || string(got[0].Status) != last.told || got[0].EnvironmentID != "b" || got[0].Desired != runtime.DesiredStop || got[0].EndedAt.IsZero() {
			t.Errorf("removed when %s: %+v", last.client, got)
		}
	}
}
