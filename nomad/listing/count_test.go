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
		"none":                      {nil, 0, 0},
		"runs":                      {[]*api.AllocationListStub{alloc("running", 0)}, 0, 0},
		"was restarted":             {[]*api.AllocationListStub{alloc("running", 2)}, 2, 2},
		"failed for good":           {[]*api.AllocationListStub{alloc("failed", 1)}, 2, 1},
		"failed, and runs anew":     {[]*api.AllocationListStub{alloc("failed", 1), alloc("running", 0)}, 2, 2},
		"its node went, runs anew":  {[]*api.AllocationListStub{alloc("lost", 0), alloc("running", 0)}, 0, 1},
		"failed here and elsewhere": {[]*api.AllocationListStub{alloc("failed", 0), alloc("failed", 0)}, 2, 1},
	} {
		if failed, again := Attempts(test.all); failed != test.failed || again != test.again {
			t.Errorf("%s: %d failed, %d again", name, failed, again)
		}
	}
}

func TestBegan(t *testing.T) {
	received := time.Now()
	task := &api.TaskState{Events: []*api.TaskEvent{{Type: api.TaskReceived, Time: received.UnixNano()}}}
	a := &api.AllocationListStub{TaskStates: map[string]*api.TaskState{"runner": task}}
	if _, known := Began(a, "runner"); known {
		t.Error("one that hasn't begun has")
	}
	task.StartedAt = received.Add(time.Second)
	if took, known := Began(a, "runner"); !known || took != time.Second {
		t.Errorf("%v, %t", took, known)
	}
	if _, known := Began(a, "beside"); known {
		t.Error("another task has begun")
	}
	task.Events = nil
	if _, known := Began(a, "runner"); known {
		t.Error("nobody knows since when")
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
		"nothing said": {&api.Evaluation{}, []Dimension{Other}},
		"memory":       {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"memory": 2}}), []Dimension{Memory}},
		"both":         {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"cpu": 1, "disk": 1}}), []Dimension{CPU, Disk}},
		"cores, too":   {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"cpu": 1, "cores": 1}}), []Dimension{CPU}},
		"a port":       {failed(api.AllocationMetric{DimensionExhausted: map[string]int{"network: reserved port collision": 1}}), []Dimension{Other}},
		"no node":      {failed(api.AllocationMetric{ConstraintFiltered: map[string]int{"missing drivers": 1}}), []Dimension{Other}},
		"quota":        {failed(api.AllocationMetric{QuotaExhausted: []string{"memory"}}), []Dimension{Quota}},
		"another":      {&api.Evaluation{QuotaLimitReached: "small"}, []Dimension{Quota}},
	} {
		got := Lacks(test.evaluation)
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
