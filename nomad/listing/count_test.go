package listing

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

func TestAttempts(t *testing.T) {
	alloc := func(status string, restarts uint64) *api.AllocationListStub {
		return &api.AllocationListStub{ClientStatus: status, TaskStates: map[string]*api.TaskState{"runner": {Restarts: restarts}}}
	}
	for name, test := range map[string]struct {
		all           []*api.AllocationListStub
		failed, again int64
	}{
		"no allocation: none":                                          {nil, 0, 0},
		"running: none":                                                {[]*api.AllocationListStub{alloc("running", 0)}, 0, 0},
		"restarted twice: two failed, two again":                       {[]*api.AllocationListStub{alloc("running", 2)}, 2, 2},
		"failed after a restart: two failed, one again":                {[]*api.AllocationListStub{alloc("failed", 1)}, 2, 1},
		"failed after a restart, next one runs: two failed, two again": {[]*api.AllocationListStub{alloc("failed", 1), alloc("running", 0)}, 2, 2},
		"node lost, next one runs: one again":                          {[]*api.AllocationListStub{alloc("lost", 0), alloc("running", 0)}, 0, 1},
		"two failed: two failed, one again":                            {[]*api.AllocationListStub{alloc("failed", 0), alloc("failed", 0)}, 2, 1},
	} {
		if failed, again := Attempts(test.all); failed != test.failed || again != test.again {
			t.Errorf("%s: %d failed, %d again, want %d, %d", name, failed, again, test.failed, test.again)
		}
	}
}

func TestBegan(t *testing.T) {
	received := time.Now()
	task := &api.TaskState{Events: []*api.TaskEvent{{Type: api.TaskReceived, Time: received.UnixNano()}}}
	a := &api.AllocationListStub{TaskStates: map[string]*api.TaskState{"runner": task}}
	if _, known := Began(a, "runner"); known {
		t.Error("a task that hasn't started has a time")
	}
	task.StartedAt = received.Add(time.Second)
	if took, known := Began(a, "runner"); !known || took != time.Second {
		t.Errorf("a started task took %v, %t, want 1s, true", took, known)
	}
	if _, known := Began(a, "beside"); known {
		t.Error("another task has a time")
	}
	task.Events = nil
	if _, known := Began(a, "runner"); known {
		t.Error("a task without a received event has a time")
	}
}

func TestLacks(t *testing.T) {
	failed := func(m api.AllocationMetric) *api.Evaluation {
		return &api.Evaluation{FailedTGAllocs: map[string]*api.AllocationMetric{"runner": &m}}
	}
	for name, test := range map[string]struct {
		evaluation *api.Evaluation
		want       []Dimension
	}{
		"no metrics: other":                 {&api.Evaluation{}, []Dimension{Other}},
		"memory exhausted: memory":          {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"memory": 2}}), []Dimension{Memory}},
		"CPU and disk exhausted: both":      {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"cpu": 1, "disk": 1}}), []Dimension{CPU, Disk}},
		"CPU and cores exhausted: CPU once": {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"cpu": 1, "cores": 1}}), []Dimension{CPU}},
		"port collision: other":             {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"network: reserved port collision": 1}}), []Dimension{Other}},
		"no node has the driver: other":     {failed(api.AllocationMetric{ConstraintFiltered: map[string]int{"missing drivers": 1}}), []Dimension{Other}},
		"quota exhausted: quota":            {failed(api.AllocationMetric{QuotaExhausted: []string{"memory"}}), []Dimension{Quota}},
		"quota limit reached: quota":        {&api.Evaluation{QuotaLimitReached: "small"}, []Dimension{Quota}},
	} {
		got := Lacks(test.evaluation)
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
