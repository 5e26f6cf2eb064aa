package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// An evaluation that can't be processed fails visibly, and has a follow-up.
func TestFailedEvaluationIsFollowedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		first := sole(t, s, Filter{})
		for range maxDeliveries { // no worker answers
			s.next(t)
			time.Sleep(nackAfter + time.Second<<(2*maxDeliveries))
		}
		failed := sole(t, s, Filter{Status: string(runtime.EvaluationFailed)})
		next := sole(t, s, Filter{Status: string(runtime.EvaluationPending)})
		if failed.ID != first.ID || failed.NextID != next.ID || failed.Reason == "" || next.PreviousID != failed.ID || next.Trigger != runtime.TriggerFailedFollowUp ||
			!next.WaitUntil.Equal(failed.EndedAt.Add(followUpAfter)) {
			t.Errorf("failed %+v\nnext %+v", failed, next)
		}
		if got := s.Stats(); got.NackTimeouts != maxDeliveries || got.Failed != 1 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// A runner waits for the follow-up, and says so.
func TestFollowUpPlacesTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		s.failNext(t)
		if d := s.Stats().Depths; d.Failed != 1 || d.Delayed != 1 {
			t.Errorf("depths: %+v", d)
		}
		defer start(s)()
		synctest.Wait()
		if s.placed("a") || s.reason("a") != "its evaluation failed, and is tried again later" || s.lacks("a") != (runtime.Resources{}) {
			t.Errorf("placed %v, %q, lacks %+v", s.placed("a"), s.reason("a"), s.lacks("a"))
		}
		time.Sleep(followUpAfter)
		synctest.Wait()
		if !s.placed("a") || s.Stats().Depths.Failed != 0 {
			t.Errorf("not placed: %+v", s.Stats())
		}
	})
}

// The evaluation of a runner that is no longer wanted has no follow-up.
func TestFailedEvaluationOfAnUnwantedRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		for i := range maxDeliveries {
			d := s.next(t)
			if i == maxDeliveries-1 {
				s.Deregister("a")
			}
			s.giveBack(d)
		}
		if got := s.Stats().Depths; got.Delayed != 0 || got.Failed != 0 || got.Outstanding != 0 {
			t.Errorf("depths: %+v", got)
		}
	})
}

// A woken evaluation that is never processed frees the room that was promised to it.
func TestFailedEvaluationKeepsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{})
		register(t, s, wish("a", "a", 50))
		s.finish(t, s.next(t), []runtime.Shortage{{Dimension: runtime.DimensionMemory, Wanted: 1}}) // it is woken immediately
		s.failNext(t)
		s.mu.Lock()
		kept := s.roomFor(nil, 50).kept
		s.mu.Unlock()
		if kept != (runtime.Resources{}) || s.Stats().Depths.Blocked != 0 {
			t.Errorf("kept: %+v; %+v", kept, s.Stats().Depths)
		}
	})
}

// next returns the next evaluation as a worker gets it.
func (b *bed) next(t interface{ Fatal(...any) }) delivery {
	for range 100 { // of 1 s: it may be delayed
		if d := b.take(); d != nil {
			return *d
		}
		time.Sleep(time.Second)
	}
	t.Fatal("no evaluation is ready")
	return delivery{}
}

// take dequeues a ready evaluation, and returns nil if there is none.
func (b *bed) take() *delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.ready.Pop(); ok {
		d := b.hold(e)
		return &d
	}
	return nil
}

// giveBack nacks d, and reports whether it was held.
func (b *bed) giveBack(d delivery) bool {
	b.mu.Lock()
	defer b.unlock()
	return b.nack(d)
}

// acked acks d, and reports whether it was held.
func (b *bed) acked(d delivery) bool {
	b.mu.Lock()
	defer b.unlock()
	return b.ack(d)
}

// finish applies a plan that found shortages, or found nothing to do.
func (b *bed) finish(t testing.TB, d delivery, short []runtime.Shortage) {
	t.Helper()
	if done, _ := b.apply(d, plan{short: short}); !done {
		t.Error("it was refused")
	}
	if short == nil {
		b.acked(d)
	}
}

// failNext lets the next evaluation fail.
func (b *bed) failNext(t testing.TB) {
	t.Helper()
	for range maxDeliveries {
		b.giveBack(b.next(t))
	}
}
