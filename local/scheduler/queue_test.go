package scheduler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// withQueue tests a scheduler without workers, in fake time.
func withQueue(t *testing.T, test func(t *testing.T, s *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, open(t, Config{Machine: huge})) })
}

// put registers a job, or a known one with another priority, and returns its evaluation.
func (b *bed) put(t interface{ Fatal(...any) }, id, environment string, priority runtime.Priority) runtime.EvaluationID {
	if err := b.Register(wish(id, environment, priority)); err != nil {
		t.Fatal(err)
	}
	return b.find(Filter{Job: runtime.RunnerID(id)})[0].ID
}

// status returns the status of an evaluation.
func (b *bed) status(id runtime.EvaluationID) runtime.EvaluationStatus {
	for _, e := range b.find(Filter{}) {
		if e.ID == id {
			return e.Status
		}
	}
	return ""
}

// order takes all ready evaluations, and returns their runners.
func (b *bed) order() (ids []runtime.RunnerID) {
	for d := b.take(); d != nil; d = b.take() {
		ids = append(ids, d.RunnerID)
	}
	return ids
}

func TestQueueOrder(t *testing.T) {
	withQueue(t, func(t *testing.T, s *bed) {
		for _, e := range []struct {
			job, environment string
			priority         runtime.Priority
		}{
			{"a1", "a", 50},
			{"a2", "a", 50},
			{"a3", "a", 50},
			{"b1", "b", 50}, // its turn is after one of a
			{"c1", "c", 80}, // a claim waits
			{"a5", "a", 80}, // after c's turn
			{"b2", "b", 50},
		} {
			s.put(t, e.job, e.environment, e.priority)
		}
		want := []runtime.RunnerID{"c1", "a5", "a1", "b1", "a2", "b2", "a3"}
		if got := s.order(); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestOneEvaluationOfAJobIsHeld(t *testing.T) {
	withQueue(t, func(t *testing.T, s *bed) {
		first := s.put(t, "a", "a", 50)
		held := s.next(t)
		second, third := s.put(t, "a", "a", 80), s.put(t, "a", "a", 90)
		if d := s.take(); d != nil {
			t.Fatalf("%s came while %s is outstanding", d.ID, first)
		}
		if got := s.Stats().Depths; got.Outstanding != 1 || got.Pending != 1 {
			t.Errorf("depths: %+v", got)
		}
		if s.status(second) != runtime.EvaluationCancelled || s.status(third) != runtime.EvaluationPending || s.status(first) != runtime.EvaluationPending {
			t.Errorf("evaluations: %+v", s.find(Filter{}))
		}
		if !s.acked(held) {
			t.Fatal("it isn't held")
		}
		if d := s.take(); d == nil || d.ID != third {
			t.Errorf("after the ack came %+v", d)
		}
	})
}

func TestNewerEvaluationSupersedes(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, s *bed){
		"a ready one":   func(*testing.T, *bed) {},
		"a delayed one": func(t *testing.T, s *bed) { s.giveBack(s.next(t)) },
		"the follow-up": func(t *testing.T, s *bed) { s.failNext(t) },
	} {
		t.Run(name, func(t *testing.T) {
			withQueue(t, func(t *testing.T, s *bed) {
				s.put(t, "a", "a", 50)
				before(t, s)
				old := s.find(Filter{Job: "a"})[0].ID
				newer := s.put(t, "a", "a", 80)
				if d := s.take(); d == nil || d.ID != newer || s.status(old) != runtime.EvaluationCancelled || s.Stats().Superseded != 1 {
					t.Errorf("came %+v, and the older one is %s", d, s.status(old))
				}
				time.Sleep(time.Second)
				if d := s.take(); d != nil {
					t.Errorf("then came %+v", d)
				}
			})
		})
	}
}

// A nacked evaluation isn't delivered again if a newer one of its job waits.
func TestNackedEvaluationIsSuperseded(t *testing.T) {
	withQueue(t, func(t *testing.T, s *bed) {
		old := s.put(t, "a", "a", 50)
		held := s.next(t)
		newer := s.put(t, "a", "a", 80)
		s.giveBack(held)
		if d := s.take(); d == nil || d.ID != newer || s.status(old) != runtime.EvaluationCancelled {
			t.Errorf("came %+v, and the older one is %s", d, s.status(old))
		}
	})
}

func TestDequeueWaits(t *testing.T) {
	withQueue(t, func(t *testing.T, s *bed) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan delivery)
		go func() {
			defer close(got)
			for d, ok := s.dequeue(ctx); ok; d, ok = s.dequeue(ctx) {
				s.acked(d)
				got <- d
				s.leave()
			}
		}()
		synctest.Wait()
		s.put(t, "a", "a", 50)
		if d := <-got; d.RunnerID != "a" {
			t.Errorf("came %+v", d)
		}
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.put(t, "b", "a", 50)
		synctest.Wait()
		select {
		case d := <-got:
			t.Errorf("%s came during the pause", d.RunnerID)
		default:
		}
		s.Resume()
		if d := <-got; d.RunnerID != "b" {
			t.Errorf("came %+v", d)
		}
		cancel()
		s.Resume() // wakes it, as Run does
		if d, ok := <-got; ok {
			t.Errorf("at the end came %+v", d)
		}
	})
}

func TestAckNeedsTheToken(t *testing.T) {
	withQueue(t, func(t *testing.T, s *bed) {
		s.put(t, "a", "a", 50)
		d := s.next(t)
		wrong := d
		wrong.token++
		if s.acked(wrong) || s.giveBack(wrong) || s.held(wrong) || !s.held(d) {
			t.Error("a wrong token is accepted")
		}
		if !s.acked(d) || s.acked(d) || s.giveBack(d) {
			t.Error("it isn't acked once")
		}
	})
}

// It is delivered again after 1 s and 4 s, and fails the third time. A silent worker counts like a
// nack.
func TestNackedEvaluationIsRedeliveredAndFails(t *testing.T) {
	withQueue(t, func(t *testing.T, s *bed) {
		id := s.put(t, "a", "a", 50)
		d := s.next(t)
		began := time.Now()
		s.giveBack(d)
		for _, want := range []time.Duration{time.Second, time.Second + nackAfter + 4*time.Second} {
			time.Sleep(time.Until(began.Add(want)) - time.Millisecond)
			if early := s.take(); early != nil {
				t.Fatalf("it came before %v", want)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			next := s.take()
			if next == nil || next.ID != id || next.token == d.token {
				t.Fatalf("after %v came %+v", want, next)
			}
			d = *next
		}
		s.giveBack(d)
		if got := s.Stats(); got.NackTimeouts != 1 || got.Nacked != 3 || got.Failed != 1 || got.Depths.Failed != 1 || s.status(id) != runtime.EvaluationFailed {
			t.Errorf("stats: %+v", got)
		}
		s.put(t, "a", "a", 80)
		if s.Stats().Depths.Failed != 0 {
			t.Error("it is still failed though something newer is ready")
		}
	})
}

// Every evaluation is delivered, superseded by a newer one of its job, or failed. Of each job at
// most one is held. A delivered evaluation has the highest ready priority, and is the oldest of its
// environment.
func TestQueueWalk(t *testing.T) {
	walks(t, walkQueue)
}

func walkQueue(t *rapid.T) {
	config := Config{Machine: huge, Overcommit: exact, Logger: zap.NewNop(), Changed: func(runtime.EnvironmentID) {}}
	scheduler, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &bed{Scheduler: scheduler}
	held := map[runtime.RunnerID]delivery{}
	acked := map[runtime.EvaluationID]bool{}
	take := func(t *rapid.T) *delivery {
		synctest.Wait() // everything that is due now has happened
		ready := s.readyNow()
		d := s.take()
		if d == nil {
			if len(ready) > 0 {
				t.Fatalf("nothing came though %d are ready", len(ready))
			}
			return nil
		}
		if other, ok := held[d.RunnerID]; ok && s.held(other) {
			t.Fatalf("%s and %s of %s are held concurrently", other.ID, d.ID, d.RunnerID)
		}
		for _, e := range ready {
			if e.Priority > d.Priority {
				t.Fatalf("%s of priority %d came before %s of %d", d.ID, d.Priority, e.ID, e.Priority)
			}
			if e.Priority == d.Priority && e.EnvironmentID == d.EnvironmentID && e.job.number < d.job.number {
				t.Fatalf("%s came before %s, which is older", d.ID, e.ID)
			}
		}
		held[d.RunnerID] = *d
		return d
	}
	pickHeld := func(t *rapid.T) delivery {
		if len(held) == 0 {
			t.Skip()
		}
		var jobs []runtime.RunnerID
		for id := range held {
			jobs = append(jobs, id)
		}
		slices.Sort(jobs)
		d := held[rapid.SampledFrom(jobs).Draw(t, "held")]
		delete(held, d.RunnerID)
		return d
	}
	t.Repeat(map[string]func(*rapid.T){
		"register": func(t *rapid.T) {
			id := rapid.IntRange(0, 7).Draw(t, "job")
			s.put(t, fmt.Sprint(id), fmt.Sprint(id%3), runtime.Priority(rapid.SampledFrom([]int{50, 80}).Draw(t, "priority")))
		},
		"deregister": func(t *rapid.T) { s.Deregister(runtime.RunnerID(fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "job")))) },
		"dequeue":    func(t *rapid.T) { take(t) },
		"ack": func(t *rapid.T) {
			d := pickHeld(t)
			synctest.Wait()
			holds := s.held(d)
			if s.acked(d) != holds {
				t.Fatalf("ack of one that is held: %v", holds)
			}
			if holds {
				acked[d.ID] = true
			}
		},
		"nack": func(t *rapid.T) { s.giveBack(pickHeld(t)) },
		"time": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second) },
	})
	for range maxDeliveries + 1 { // held and delayed ones are delivered again
		time.Sleep(nackAfter + time.Minute)
		for d := take(t); d != nil; d = take(t) {
			s.acked(*d)
			acked[d.ID] = true
		}
	}
	for _, e := range s.find(Filter{Status: string(runtime.EvaluationPending)}) {
		if !acked[e.ID] { // nobody has applied a plan
			t.Fatalf("lost: %+v", e)
		}
	}
	for id, j := range s.jobs {
		if j.next != nil || j.held != nil {
			t.Fatalf("%s has %+v and %+v", id, j.next, j.held)
		}
	}
}

func (b *bed) readyNow() (all []*evaluation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, level := range b.ready.Levels() {
		all = slices.AppendSeq(all, level.All())
	}
	return all
}

// held reports whether d is held.
func (b *bed) held(d delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return d.holds()
}
