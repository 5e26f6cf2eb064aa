package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// brokerBed is an enabled broker in fake time.
type brokerBed struct {
	*broker
	created uint64

	told       sync.Mutex // guards superseded
	superseded map[runtime.EvaluationID]runtime.EvaluationID
}

func withBroker(t *testing.T, test func(t *testing.T, b *brokerBed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBrokerBed()
		test(t, b)
	})
}

func newBrokerBed() *brokerBed {
	b := &brokerBed{superseded: map[runtime.EvaluationID]runtime.EvaluationID{}}
	b.broker = newBroker(&stats{}, func(old, by *Evaluation) {
		b.told.Lock()
		defer b.told.Unlock()
		b.superseded[old.ID] = by.ID
	})
	b.enable()
	return b
}

// over returns the superseded evaluations, and what superseded them.
func (b *brokerBed) over() map[runtime.EvaluationID]runtime.EvaluationID {
	b.told.Lock()
	defer b.told.Unlock()
	return maps.Clone(b.superseded)
}

func (b *brokerBed) add(job, environment string, priority runtime.Priority, t runtime.EvaluationType) *Evaluation {
	b.created++
	e := &Evaluation{
		ID: runtime.EvaluationID(fmt.Sprintf("e%04d", b.created)), Job: runtime.RunnerID(job), Environment: runtime.EnvironmentID(environment),
		Priority: priority, Type: t, CreateIndex: b.created, Status: runtime.EvaluationPending,
	}
	b.enqueue(e)
	return e
}

// take dequeues a ready evaluation; nil: there is none.
func (b *brokerBed) take(t interface{ Fatal(...any) }, types ...runtime.EvaluationType) *delivery {
	if len(types) == 0 {
		types = Types()
	}
	d, err := b.dequeue(context.Background(), nil, time.Nanosecond, types...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *brokerBed) order(t *testing.T) (ids []runtime.EvaluationID) {
	for d := b.take(t); d != nil; d = b.take(t) {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestBrokerOrder(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		for _, e := range []struct {
			job, environment string
			priority         runtime.Priority
			evaluationType   runtime.EvaluationType
		}{
			{"a1", "a", 50, runtime.EvaluationPlace}, // e0001
			{"a2", "a", 50, runtime.EvaluationPlace},
			{"a3", "a", 50, runtime.EvaluationPlace},
			{"b1", "b", 50, runtime.EvaluationPlace}, // its turn is after one of a
			{"c1", "c", 80, runtime.EvaluationPlace}, // a claim waits
			{"a4", "a", 100, runtime.EvaluationStop}, // frees room
			{"", "", 1, runtime.EvaluationCollect},   // has time
			{"a5", "a", 80, runtime.EvaluationPlace}, // after c's turn
			{"b2", "b", 50, runtime.EvaluationPlace}, // e0009
		} {
			b.add(e.job, e.environment, e.priority, e.evaluationType)
		}
		want := []runtime.EvaluationID{"e0006", "e0005", "e0008", "e0001", "e0004", "e0002", "e0009", "e0003", "e0007"}
		if got := b.order(t); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

func TestBrokerTypes(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		b.add("a", "a", 50, runtime.EvaluationPlace)
		if d := b.take(t, runtime.EvaluationStop, runtime.EvaluationCollect); d != nil {
			t.Errorf("a worker that only stops got %+v", d.Evaluation)
		}
		if d := b.take(t, runtime.EvaluationPlace); d == nil || d.Type != runtime.EvaluationPlace {
			t.Errorf("got %+v", d)
		}
	})
}

func TestBrokerHoldsOnePerJob(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		first := b.add("a", "a", 50, runtime.EvaluationPlace)
		held := b.take(t)
		second, third := b.add("a", "a", 80, runtime.EvaluationPlace), b.add("a", "a", 100, runtime.EvaluationStop)
		if d := b.take(t); d != nil {
			t.Fatalf("%s came while %s is outstanding", d.ID, first.ID)
		}
		if got := b.depths(); got.Outstanding != 1 || got.Pending != 1 {
			t.Errorf("depths: %+v", got)
		}
		if b.over()[second.ID] != third.ID {
			t.Errorf("superseded: %v", b.over())
		}
		if err := b.ack(*held); err != nil {
			t.Fatal(err)
		}
		if d := b.take(t); d == nil || d.ID != third.ID {
			t.Errorf("after the ack came %+v", d)
		}
	})
}

func TestBrokerSupersedes(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(b *brokerBed)
		want runtime.EvaluationID
	}{
		"a ready one by a newer one": {func(b *brokerBed) {
			b.add("a", "a", 50, runtime.EvaluationPlace)
			b.add("a", "a", 50, runtime.EvaluationStop)
		}, "e0002"},
		"a late one by the queued one": {func(b *brokerBed) {
			b.created = 1
			b.add("a", "a", 50, runtime.EvaluationPlace)
			b.created = 0
			b.add("a", "a", 50, runtime.EvaluationPlace)
		}, "e0002"},
		"a delayed one by a ready one": {func(b *brokerBed) {
			b.add("a", "a", 50, runtime.EvaluationStop)
			b.enqueue(&Evaluation{ID: "e0002", Job: "a", Type: runtime.EvaluationStop, CreateIndex: 2, WaitUntil: time.Now().Add(time.Minute)})
		}, "e0001"},
		"not by itself": {func(b *brokerBed) { b.enqueue(b.add("a", "a", 50, runtime.EvaluationPlace)) }, "e0001"},
	} {
		t.Run(name, func(t *testing.T) {
			withBroker(t, func(t *testing.T, b *brokerBed) {
				test.do(b)
				if got := b.order(t); !slices.Equal(got, []runtime.EvaluationID{test.want}) {
					t.Errorf("came %v, want %s", got, test.want)
				}
			})
		})
	}
}

// A woken evaluation that blocks again and is woken immediately is queued while it is held.
func TestBrokerDeliversAgainWhatIsEnqueuedWhileHeld(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		e := b.add("a", "a", 50, runtime.EvaluationPlace)
		held := b.take(t)
		b.enqueue(e)
		if d := b.take(t); d != nil {
			t.Fatalf("%s is held twice", d.ID)
		}
		if err := b.ack(*held); err != nil {
			t.Fatal(err)
		}
		for name, giveBack := range map[string]func(d delivery){
			"nack":    func(d delivery) { _ = b.nack(d) },
			"put":     b.putBack,
			"disable": func(delivery) { b.disable(); b.enable() },
		} {
			d := b.take(t)
			if d == nil || d.ID != e.ID {
				t.Fatalf("came %+v", d)
			}
			b.enqueue(e)
			giveBack(*d)
			if len(b.over()) > 0 {
				t.Errorf("%s: it was superseded by itself", name)
			}
		}
		if d := b.take(t); d == nil || d.ID != e.ID {
			t.Errorf("came %+v", d)
		}
	})
}

func TestBrokerWaitsAndWakes(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		began := time.Now()
		if d, err := b.dequeue(t.Context(), nil, 3*time.Second, runtime.EvaluationPlace); d != nil || err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("without an evaluation: %v, %v after %v", d, err, time.Since(began))
		}
		stop := make(chan struct{})
		close(stop)
		if d, err := b.dequeue(t.Context(), stop, time.Hour, runtime.EvaluationPlace); d != nil || err != nil {
			t.Errorf("stopped: %v, %v", d, err)
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := b.dequeue(ctx, nil, time.Hour, runtime.EvaluationPlace); !errors.Is(err, why) {
			t.Errorf("cancelled: %v", err)
		}
		began = time.Now()
		time.AfterFunc(time.Second, func() { b.add("a", "a", 50, runtime.EvaluationPlace) })
		if d, err := b.dequeue(t.Context(), nil, time.Hour, runtime.EvaluationPlace); d == nil || err != nil || time.Since(began) != time.Second {
			t.Errorf("%v, %v after %v", d, err, time.Since(began))
		}
		time.AfterFunc(time.Second, b.disable)
		if _, err := b.dequeue(t.Context(), nil, time.Hour, runtime.EvaluationPlace); !errors.Is(err, errDisabled) {
			t.Errorf("disabled: %v", err)
		}
	})
}

func TestBrokerNeedsTheToken(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		b.add("a", "a", 50, runtime.EvaluationPlace)
		d := *b.take(t)
		wrong := d
		wrong.token++
		if err := b.ack(wrong); !errors.Is(err, errNotHeld) {
			t.Errorf("ack: %v", err)
		}
		if err := b.nack(wrong); !errors.Is(err, errNotHeld) {
			t.Errorf("nack: %v", err)
		}
		if !b.holds(d) || b.holds(wrong) {
			t.Error("a wrong token is accepted")
		}
		if err := errors.Join(b.ack(d)); err != nil {
			t.Error(err)
		}
		if err := b.ack(d); !errors.Is(err, errNotHeld) {
			t.Errorf("a second ack: %v", err)
		}
	})
}

// It is delivered again after 1 s and 4 s, and fails the third time. A silent worker counts like a
// nack.
func TestBrokerRedeliversAndFails(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		e := b.add("a", "a", 50, runtime.EvaluationPlace)
		d := b.take(t)
		if err := b.nack(*d); err != nil {
			t.Fatal(err)
		}
		for _, want := range []time.Duration{time.Second, nackAfter + 4*time.Second} {
			began := time.Now()
			next, err := b.dequeue(t.Context(), nil, time.Hour, runtime.EvaluationPlace)
			if err != nil || next.ID != e.ID || next.token == d.token || time.Since(began) != want {
				t.Fatalf("%+v, %v after %v, want %v", next, err, time.Since(began), want)
			}
			d = next
		}
		if err := b.nack(*d); err != nil {
			t.Fatal(err)
		}
		<-b.failing
		if failed := b.failures(); len(failed) != 1 || failed[0].ID != e.ID || b.depths().Failed != 1 || b.failure("a") == nil {
			t.Errorf("failed: %+v; %+v", failed, b.depths())
		}
		if again := b.failures(); again != nil {
			t.Errorf("taken twice: %+v", again)
		}
		if got := b.stats.read(); got.NackTimeouts != 1 || got.Nacked != 3 || got.Failed != 1 {
			t.Errorf("stats: %+v", got)
		}
		b.add("a", "a", 50, runtime.EvaluationPlace)
		if b.depths().Failed != 0 {
			t.Error("it is still failed though something newer is ready")
		}
	})
}

func TestBrokerLosesNothingWhileDisabled(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		b.add("held", "a", 50, runtime.EvaluationPlace)
		d := b.take(t)
		b.add("ready", "a", 50, runtime.EvaluationPlace)
		b.add("held", "a", 50, runtime.EvaluationStop) // pending
		b.add("nacked", "b", 90, runtime.EvaluationPlace)
		if err := b.nack(*b.take(t)); err != nil {
			t.Fatal(err)
		}
		b.disable()
		b.disable()
		b.add("late", "a", 50, runtime.EvaluationPlace)
		if b.holds(*d) {
			t.Error("it is still held")
		}
		if _, err := b.dequeue(t.Context(), nil, time.Hour, runtime.EvaluationPlace); !errors.Is(err, errDisabled) {
			t.Errorf("dequeue: %v", err)
		}
		time.Sleep(time.Minute)
		b.enable()
		<-b.whenEnabled()
		got := b.order(t)
		slices.Sort(got)
		// e0001 is held's first, which e0003 supersedes.
		if want := []runtime.EvaluationID{"e0002", "e0003", "e0004", "e0005"}; !slices.Equal(got, want) || b.over()["e0001"] != "e0003" {
			t.Errorf("came %v, want %v; superseded: %v", got, want, b.over())
		}
	})
}

func TestBrokerPutBackCountsNoDelivery(t *testing.T) {
	withBroker(t, func(t *testing.T, b *brokerBed) {
		b.add("a", "a", 50, runtime.EvaluationPlace)
		for range 2 * maxDeliveries {
			d := b.take(t)
			if d == nil {
				t.Fatal("it isn't delivered immediately")
			}
			b.putBack(*d)
			b.putBack(*d) // no longer held
			if d = b.take(t); d == nil {
				t.Fatal("it isn't delivered immediately")
			}
			b.disable()
			b.enable()
		}
		if err := b.nack(*b.take(t)); err != nil {
			t.Fatal(err)
		}
		if got := b.depths(); got.Delayed != 1 || got.Failed != 0 {
			t.Errorf("depths: %+v", got)
		}
	})
}

// Every evaluation is delivered, superseded by a newer one of its job, or failed. Of each job at
// most one is held. A delivered evaluation has the highest ready priority, and is the oldest of its
// environment.
func TestBrokerWalk(t *testing.T) {
	walks(t, walkBroker)
}

func walkBroker(t *rapid.T) {
	b := newBrokerBed()
	held := map[runtime.RunnerID]delivery{}
	open := map[runtime.EvaluationID]*Evaluation{} // neither acknowledged nor superseded nor failed
	settle := func() {
		synctest.Wait() // everything that is due now has happened
		for id, by := range b.over() {
			if open[id] != nil && by <= id { // ids are ordered
				t.Fatalf("%s was superseded by %s", id, by)
			}
			delete(open, id)
		}
		for _, e := range b.failures() {
			delete(open, e.ID)
		}
	}
	take := func(t *rapid.T) *delivery {
		settle()
		ready := b.readyNow()
		d := b.take(t, runtime.EvaluationPlace, runtime.EvaluationStop)
		if d == nil {
			if len(ready) > 0 {
				t.Fatalf("nothing came though %d are ready", len(ready))
			}
			return nil
		}
		if other, ok := held[d.Job]; ok && b.holds(other) {
			t.Fatalf("%s and %s of %s are held concurrently", other.ID, d.ID, d.Job)
		}
		for _, e := range ready {
			if e.Priority > d.Priority {
				t.Fatalf("%s of priority %d came before %s of %d", d.ID, d.Priority, e.ID, e.Priority)
			}
			if e.Priority == d.Priority && e.Type == d.Type && e.Environment == d.Environment && e.CreateIndex < d.CreateIndex {
				t.Fatalf("%s came before %s, which is older", d.ID, e.ID)
			}
		}
		held[d.Job] = *d
		return d
	}
	pickHeld := func(t *rapid.T) delivery {
		if len(held) == 0 {
			t.Skip()
		}
		var jobs []runtime.RunnerID
		for job := range held {
			jobs = append(jobs, job)
		}
		slices.Sort(jobs)
		d := held[rapid.SampledFrom(jobs).Draw(t, "held")]
		delete(held, d.Job)
		return d
	}
	t.Repeat(map[string]func(*rapid.T){
		"enqueue": func(t *rapid.T) {
			kind := rapid.SampledFrom([]runtime.EvaluationType{runtime.EvaluationPlace, runtime.EvaluationStop}).Draw(t, "type")
			job := rapid.IntRange(0, 7).Draw(t, "job")
			priority := runtime.Priority(rapid.SampledFrom([]int{50, 80}).Draw(t, "priority"))
			e := b.add(fmt.Sprint(job), fmt.Sprint(job%3), priority, kind)
			open[e.ID] = e
		},
		"dequeue": func(t *rapid.T) {
			if b.isEnabled() {
				take(t)
			}
		},
		"ack": func(t *rapid.T) {
			d := pickHeld(t)
			settle()
			holds := b.holds(d)
			if err := b.ack(d); (err == nil) != holds {
				t.Fatalf("ack of one that is held (%v): %v", holds, err)
			} else if err == nil {
				delete(open, d.ID)
			}
		},
		"nack":    func(t *rapid.T) { _ = b.nack(pickHeld(t)) },
		"putBack": func(t *rapid.T) { b.putBack(pickHeld(t)) },
		"time":    func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 90).Draw(t, "s")) * time.Second) },
		"disable": func(*rapid.T) { b.disable() },
		"enable":  func(*rapid.T) { b.enable() },
	})
	b.enable()
	for range maxDeliveries + 1 { // held and delayed ones are delivered again
		time.Sleep(nackAfter + time.Minute)
		for d := take(t); d != nil; d = take(t) {
			if err := b.ack(*d); err != nil {
				t.Fatal(err)
			}
			delete(open, d.ID)
		}
		settle()
	}
	if len(open) > 0 {
		t.Fatalf("lost: %v of %d", open, b.created)
	}
	if len(b.slots) > 0 {
		t.Fatalf("%d slots are left", len(b.slots))
	}
}

func (b *broker) isEnabled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.enabled
}

func (b *broker) readyNow() (all []*Evaluation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, queue := range b.ready {
		for _, level := range queue.Levels() {
			all = slices.AppendSeq(all, level.All())
		}
	}
	return all
}
