package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime"
)

// Listings are newest first. Restored allocations have the ids of their runners, and are oldest.
func TestListingsAreNewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		for _, id := range []string{"0-b", "0-a"} {
			s.Restore(wish(id, "env", 50), runtime.AllocationRunning)
		}
		defer start(s)()
		for _, id := range []string{"1-a", "1-b"} {
			register(t, s, wish(id, "env", 50))
			synctest.Wait()
		}
		runners := func(all []runtime.Allocation) (ids []runtime.RunnerID) {
			for _, a := range all {
				ids = append(ids, a.RunnerID)
			}
			return ids
		}
		if got := runners(s.allocated("")); !slices.Equal(got, []runtime.RunnerID{"1-b", "1-a", "0-b", "0-a"}) {
			t.Errorf("allocations: %q", got)
		}
		page, total := s.Allocations(runtime.AllocationFilter{After: string(s.allocated("1-a")[0].ID), Limit: 1})
		if got := runners(page); total != 4 || !slices.Equal(got, []runtime.RunnerID{"0-b"}) {
			t.Errorf("a page: %q of %d", got, total)
		}
		evaluations, total := s.Evaluations(runtime.EvaluationFilter{EnvironmentID: "env", Limit: 1})
		if total != 2 || evaluations[0].RunnerID != "1-b" {
			t.Errorf("a page: %+v of %d", evaluations, total)
		}
		if got := s.find(Filter{Job: "unknown"}); got != nil {
			t.Errorf("of an unknown runner: %+v", got)
		}
	})
}

func TestMachineIsChecked(t *testing.T) {
	for field, machine := range map[string]runtime.Resources{
		"":                               small,
		"scheduler.machine.cpuMHz":       {},
		"scheduler.machine.memoryMiB":    {CPUMHz: 1},
		"scheduler.machine.processes":    {CPUMHz: 1, MemoryMiB: 1, WorkspaceMiB: 1},
		"scheduler.machine.workspaceMiB": {CPUMHz: 1, MemoryMiB: 1, Processes: 1},
	} {
		_, err := New(Config{Machine: machine})
		var typed *runtime.Error
		switch {
		case field == "" && err != nil:
			t.Error(err)
		case field != "" && (!errors.As(err, &typed) || typed.Field != field || typed.Code != runtime.CodeInvalidInput):
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestJobsAreChecked(t *testing.T) {
	s := open(t, Config{})
	for field, j := range map[string]Job{
		"id":                  wish("", "a", 50),
		"environment":         wish("a", "", 50),
		"priority":            wish("a", "a", 100),
		"resources.memoryMiB": sized(wish("a", "a", 50), 0),
	} {
		var typed *runtime.Error
		if err := s.Register(j); !errors.As(err, &typed) || typed.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if len(s.jobs) > 0 {
		t.Errorf("%d jobs are registered", len(s.jobs))
	}
}

// laptop is opened with the default factors.
var laptop = runtime.Resources{CPUMHz: 2 * 2000, MemoryMiB: 2048, Processes: 32768, WorkspaceMiB: 2048}

// The smallest usual machine holds eight pools of two, and as many claimed runners, all of the
// default size.
func TestDefaultsSufficeForALaptop(t *testing.T) {
	run(t, Config{Machine: laptop}, func(t *testing.T, s *bed) {
		for i := range 40 {
			j := wish(fmt.Sprint(i), fmt.Sprint(i%8), 50)
			j.Resources = runtime.DefaultResources()
			register(t, s, j)
		}
		synctest.Wait()
		if got := s.Stats(); got.Placed != 40 {
			t.Errorf("placed %d; %s", got.Placed, s.reason("39"))
		}
		for i := range 40 {
			j := wish(fmt.Sprintf("more-%d", i), "more", 50)
			j.Resources = runtime.DefaultResources()
			register(t, s, j)
		}
		synctest.Wait()
		if got := s.Stats().Depths; got.Blocked != 16 || got.Lacking[runtime.DimensionMemory] != 16 {
			t.Errorf("it can't be exhausted: %+v", got)
		}
	})
}
