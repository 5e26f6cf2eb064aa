package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An evaluation that can't be processed fails visibly, and has a follow-up.
func TestFailedEvaluationIsFollowedUp(t *testing.T) {
	restoring(t, Config{Workers: 1}, []Job{job("a", "a", 50)}, nil, func(t *testing.T, s *Scheduler) {
		first := sole(t, s, Filter{})
		for s.Stats().Depths.Failed == 0 { // restoring takes minutes
			time.Sleep(time.Second)
		}
		synctest.Wait()
		failed := sole(t, s, Filter{Status: string(runtime.EvaluationFailed)})
		next := sole(t, s, Filter{Status: string(runtime.EvaluationPending)})
		if failed.ID != first.ID || failed.Next != next.ID || failed.Reason == "" || next.Previous != failed.ID || next.Trigger != runtime.TriggerFailedFollowUp ||
			!next.WaitUntil.Equal(failed.EndedAt.Add(followUpAfter)) {
			t.Errorf("failed %+v\nnext %+v", failed, next)
		}
		if got := s.Stats(); got.NackTimeouts != maxDeliveries || got.Depths.Delayed != 1 {
			t.Errorf("stats: %+v", got)
		}
		s.Restored()
		synctest.Wait()
		if placed(s, "a") || s.Reason("a") != "its evaluation failed, and is tried again later" || s.Lacks("a") != (runtime.Resources{}) {
			t.Errorf("placed %v, %q, lacks %+v", placed(s, "a"), s.Reason("a"), s.Lacks("a"))
		}
		time.Sleep(followUpAfter)
		synctest.Wait()
		if !placed(s, "a") || s.Stats().Depths.Failed != 0 {
			t.Errorf("not placed: %+v", s.Stats())
		}
	})
}

// A woken evaluation that is never processed frees the room that was promised to it.
func TestFailedEvaluationKeepsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		fresh(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.followUp(ctx)
		register(t, s, job("a", "a", 50))
		next := func() delivery {
			d, err := s.broker.dequeue(t.Context(), nil, time.Minute, runtime.EvaluationPlace)
			if err != nil || d == nil {
				t.Fatal(d, err)
			}
			return *d
		}
		first := next()
		if err := s.finish(first, []Shortage{{Dimension: Memory, Wanted: 1}}); err != nil { // it is woken immediately
			t.Fatal(err)
		}
		if err := s.broker.ack(first); err != nil {
			t.Fatal(err)
		}
		for range maxDeliveries {
			if err := s.broker.nack(next()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if kept := s.blocked.kept("b", 50, small); kept != (runtime.Resources{}) || s.Stats().Depths.Blocked != 0 {
			t.Errorf("kept: %+v; %+v", kept, s.Stats().Depths)
		}
	})
}

// A waiting evaluation doesn't wait for ever if a newer one of its job fails in its place.
func TestFailedEvaluationEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		fresh(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.followUp(ctx)
		next := func() delivery {
			d, err := s.broker.dequeue(t.Context(), nil, time.Minute, runtime.EvaluationPlace)
			if err != nil || d == nil {
				t.Fatal(d, err)
			}
			return *d
		}
		large := sized(job("a", "a", 50), 2*small.MemoryMiB)
		register(t, s, large)
		first := next()
		if err := s.finish(first, []Shortage{{Dimension: Memory, Wanted: large.Resources.MemoryMiB}}); err != nil {
			t.Fatal(err)
		}
		if err := s.broker.ack(first); err != nil {
			t.Fatal(err)
		}
		waits := sole(t, s, Filter{Status: string(runtime.EvaluationBlocked)})
		large.Priority = 60
		register(t, s, large)
		for range maxDeliveries {
			if err := s.broker.nack(next()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if e := s.Snapshot().evaluation(waits.ID); e.Status != runtime.EvaluationCancelled || e.Reason == "" {
			t.Errorf("it is %+v", e)
		}
	})
}
