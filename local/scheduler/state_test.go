package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestStateCountsChanges(t *testing.T) {
	s := newState(Node{})
	first := s.snapshot()
	if at := s.write(func(*write) {}); at != first.index {
		t.Errorf("a write of nothing has index %d after %d", at, first.index)
	}
	for i := range uint64(3) {
		if at := s.write(func(w *write) { w.putJob(job(fmt.Sprint(i), "a", 50)) }); at != first.index+i+1 {
			t.Errorf("index %d after %d", at, first.index+i)
		}
	}
	at := s.write(func(w *write) { // the same again
		j, _ := w.Job("0")
		w.putJob(j)
	})
	if last := s.snapshot(); at != first.index+3 || last.index != at || len(last.Jobs()) != 3 {
		t.Errorf("index %d, then %d", at, last.index)
	}
	if len(first.Jobs()) != 0 {
		t.Error("a snapshot has changed")
	}
	if j, _ := s.snapshot().Job("1"); j.CreateIndex != first.index+2 || j.ModifyIndex != j.CreateIndex || j.Status != JobPending {
		t.Errorf("job %+v", j)
	}
}

func TestStateWritesAllOrNothing(t *testing.T) {
	s := newState(Node{})
	before := s.snapshot().index
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a row that belongs elsewhere was put")
			}
		}()
		s.write(func(w *write) {
			w.putJob(job("a", "a", 50))
			w.put(tableJobs, &Node{})
		})
	}()
	if snap := s.snapshot(); snap.index != before || len(snap.Jobs()) != 0 {
		t.Errorf("half a write is there: %+v", snap.Jobs())
	}
	s.write(func(w *write) { w.putJob(job("b", "a", 50)) }) // and the next one isn't stuck
}

func TestBlockingReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		at := s.Snapshot().index
		time.AfterFunc(time.Second, func() { register(t, s, job("a", "a", 50)) })
		began := time.Now()
		snap, err := s.Wait(t.Context(), at)
		if err != nil || snap.index != at+1 || time.Since(began) != time.Second {
			t.Errorf("index %d, %v after %v", snap.index, err, time.Since(began))
		}
		if snap, err = s.Wait(t.Context(), 0); err != nil || snap.index != at+1 {
			t.Errorf("the earlier state: %d, %v", snap.index, err)
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, err = s.Wait(ctx, at+1); !errors.Is(err, why) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// Orders isn't woken by Update, and returns each changed allocation once, as it is now.
func TestOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(Node{})
		put := func(id runtime.AllocationID, change func(a *Allocation)) {
			s.write(func(w *write) {
				before := w.allocation(id)
				a := Allocation{ID: id, Job: "a", Desired: runtime.DesiredRun, Status: runtime.AllocationPending}
				if before != nil {
					a = *before
				}
				change(&a)
				w.putAllocation(before, &a)
			})
		}
		get := func(after uint64) (ids string, at uint64) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			all, at, _ := s.orders(ctx, after)
			for _, a := range all {
				ids += fmt.Sprintf("%s %s %s, ", a.ID, a.Desired, a.Status)
			}
			return ids, at
		}
		for _, id := range []runtime.AllocationID{"z", "y", "x"} {
			put(id, func(*Allocation) {})
		}
		ids, at := get(0)
		if ids != "z RUN PENDING, y RUN PENDING, x RUN PENDING, " {
			t.Errorf("at first: %s", ids)
		}
		put("y", func(a *Allocation) { a.Status = runtime.AllocationRunning })
		if ids, same := get(at); ids != "" || same != at {
			t.Errorf("after an update: %s", ids)
		}
		put("y", func(a *Allocation) { a.Desired = runtime.DesiredStop })
		if ids, at = get(at); ids != "y STOP RUNNING, " {
			t.Errorf("after a stop: %s", ids)
		}
		if ids, _ = get(at); ids != "" {
			t.Errorf("twice: %s", ids)
		}
		if ids, _ = get(0); ids != "z RUN PENDING, x RUN PENDING, y STOP RUNNING, " {
			t.Errorf("all: %s", ids)
		}
	})
}

func TestRowsAreNewestFirst(t *testing.T) {
	s := newState(Node{})
	s.write(func(w *write) {
		for i, job := range []runtime.RunnerID{"a", "b", "a", "ab"} {
			w.putEvaluation(&Evaluation{ID: runtime.EvaluationID(fmt.Sprint(i)), Job: job})
			w.putAllocation(nil, &Allocation{ID: runtime.AllocationID(fmt.Sprint(i)), Job: job})
		}
	})
	for job, want := range map[runtime.RunnerID]string{"": "3210", "a": "20", "c": ""} {
		evaluations, allocations := "", ""
		for e := range s.snapshot().EachEvaluation(job) {
			evaluations += string(e.ID)
		}
		for a := range s.snapshot().EachAllocation(job) {
			allocations += string(a.ID)
		}
		if evaluations != want || allocations != want {
			t.Errorf("of %q: evaluations %s, allocations %s", job, evaluations, allocations)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, config := range map[string]Config{
		"":                               {Machine: small},
		"scheduler.machine.cpuMHz":       {},
		"scheduler.machine.memoryMiB":    {Machine: runtime.Resources{CPUMHz: 1}},
		"scheduler.workers":              {Machine: small, Workers: 65},
		"scheduler.overcommit.cpu":       {Machine: small, Overcommit: Overcommit{CPU: -1}},
		"scheduler.overcommit.memory":    {Machine: small, Overcommit: Overcommit{Memory: 1001}},
		"scheduler.overcommit.processes": {Machine: small, Overcommit: Overcommit{Processes: math.NaN()}},
		"scheduler.overcommit.workspace": {Machine: small, Overcommit: Overcommit{Workspace: 0.01}},
		"scheduler.collect.every":        {Machine: small, Collect: Collect{Every: time.Millisecond}},
		"scheduler.collect.evaluations":  {Machine: small, Collect: Collect{Evaluations: -time.Second}},
		"scheduler.collect.runners":      {Machine: small, Collect: Collect{Runners: 1}},
		"scheduler.machine.processes":    {Machine: runtime.Resources{CPUMHz: 1, MemoryMiB: 1, WorkspaceMiB: 1}},
		"scheduler.machine.workspaceMiB": {Machine: runtime.Resources{CPUMHz: 1, MemoryMiB: 1, Processes: 1}},
	} {
		_, err := New(config)
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
		"id":                  job("", "a", 50),
		"environment":         job("a", "", 50),
		"priority":            job("a", "a", 100),
		"resources.memoryMiB": sized(job("a", "a", 50), 0),
	} {
		var typed *runtime.Error
		if err := s.Register(j); !errors.As(err, &typed) || typed.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := len(s.Snapshot().Jobs()); n > 0 {
		t.Errorf("%d jobs are registered", n)
	}
}

// The smallest usual machine holds eight pools of two, and as many claimed runners, all of the
// default size.
func TestDefaultsSufficeForALaptop(t *testing.T) {
	laptop := runtime.Resources{CPUMHz: 2 * 2000, MemoryMiB: 2048, Processes: 32768, WorkspaceMiB: 2048}
	run(t, Config{Machine: laptop, Overcommit: DefaultOvercommit()}, func(t *testing.T, s *Scheduler) {
		for i := range 40 {
			j := job(fmt.Sprint(i), fmt.Sprint(i%8), 50)
			j.Resources = runtime.DefaultResources()
			register(t, s, j)
		}
		synctest.Wait()
		if got := s.Stats(); got.Placed != 40 {
			t.Errorf("placed %d; %s", got.Placed, s.Reason("39"))
		}
		for i := range 40 {
			j := job(fmt.Sprintf("more-%d", i), "more", 50)
			j.Resources = runtime.DefaultResources()
			register(t, s, j)
		}
		synctest.Wait()
		if got := s.Stats().Depths; got.Blocked != 16 || got.Lacking[Memory] != 16 {
			t.Errorf("it can't be exhausted: %+v", got)
		}
	})
}
