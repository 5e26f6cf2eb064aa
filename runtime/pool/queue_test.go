package pool

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// TestQueueWalk: against a plain list in the order in which the claims came. Each
// claim that is served is its caller's oldest, and while a caller waits each other
// one is served once at most: nobody starves.
func TestQueueWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []*waiter
		passed := map[string]map[string]int{} // by a caller that waits: how often each other was served meanwhile
		start := time.Unix(1000, 0)
		forget := func(w *waiter) {
			at := slices.Index(model, w)
			model = slices.Delete(model, at, at+1)
			if !slices.ContainsFunc(model, func(o *waiter) bool { return o.claim.Caller == w.claim.Caller }) {
				delete(passed, w.claim.Caller)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				w := &waiter{claim: Claim{Caller: rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(t, "caller")}}
				w.deadline = start.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "deadline")) * time.Second)
				q.push(w)
				model = append(model, w)
				if passed[w.claim.Caller] == nil {
					passed[w.claim.Caller] = map[string]int{}
				}
			},
			"pop": func(t *rapid.T) {
				w := q.pop()
				if (w == nil) != (len(model) == 0) {
					t.Fatalf("popped %+v of %d", w, len(model))
				}
				if w == nil {
					return
				}
				caller := w.claim.Caller
				if at := slices.IndexFunc(model, func(o *waiter) bool { return o.claim.Caller == caller }); model[at] != w {
					t.Fatalf("a claim of %q came before an older one", caller)
				}
				passed[caller] = map[string]int{}
				for other, times := range passed {
					if times[caller]++; other != caller && times[caller] > 1 {
						t.Fatalf("%q was served %d times while %q waited", caller, times[caller], other)
					}
				}
				forget(w)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				w := rapid.SampledFrom(model).Draw(t, "claim")
				q.remove(w)
				q.remove(w) // it may leave just when it was served
				forget(w)
			},
			"expire": func(t *rapid.T) {
				now := start.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "now")) * time.Second)
				for w := q.expired(now); w != nil; w = q.expired(now) {
					if w.deadline.After(now) {
						t.Fatalf("expired %v too early", w.deadline.Sub(now))
					}
					forget(w)
				}
				for _, w := range model {
					if !w.deadline.After(now) {
						t.Fatalf("a claim is %v late", now.Sub(w.deadline))
					}
				}
			},
			"": func(t *rapid.T) {
				var next time.Time
				for _, w := range model {
					next = earlier(next, w.deadline)
				}
				if q.length() != len(model) || !q.nextDeadline().Equal(next) {
					t.Fatalf("%d wait until %v, want %d until %v", q.length(), q.nextDeadline(), len(model), next)
				}
			},
		})
	})
}

// TestQueueOfOneAllocatesNothing: a claim that is served at once passes through.
func TestQueueOfOneAllocatesNothing(t *testing.T) {
	var q queue
	w := &waiter{claim: Claim{Caller: "a"}, deadline: time.Unix(1, 0)}
	got := testing.AllocsPerRun(1000, func() {
		q.push(w)
		if q.pop() != w {
			t.Fatal("another claim came")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// BenchmarkQueue serves one claim after another of many that wait.
func BenchmarkQueue(b *testing.B) {
	for _, waiting := range []int{0, 100, 100_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			var q queue
			for i := range waiting + 1 {
				q.push(&waiter{claim: Claim{Caller: fmt.Sprint(i % 1000)}, deadline: time.Unix(int64(i), 0)})
			}
			b.ReportAllocs()
			for b.Loop() {
				q.push(q.pop())
			}
		})
	}
}

// TestCallersTakeTurns: one caller's claims wait, then one each of two others. A
// claim that expires keeps no turn for its caller.
func TestCallersTakeTurns(t *testing.T) {
	run(t, 0, func(t *testing.T, b *bed) {
		gate := make(chan struct{})
		defer close(gate)
		b.fake.OnStart(func(runtime.RunnerID) error { <-gate; return nil })
		served := make(chan string, 100)
		claim := func(caller string, waitFor time.Duration) {
			go func() {
				if _, err := b.Claim(t.Context(), Claim{Caller: caller, WaitFor: waitFor}); err == nil {
					served <- caller
				}
			}()
			settle(time.Millisecond)
		}
		claim("a", time.Minute)
		claim("b", time.Second) // expires
		for range 4 {
			claim("a", time.Hour)
		}
		settle(2 * time.Second)
		claim("c", time.Hour)
		claim("b", time.Hour)
		if got := b.Status().Waiting; got != 7 {
			t.Fatalf("%d wait", got)
		}
		var order []string
		for len(order) < 7 {
			select {
			case gate <- struct{}{}: // a runner is ready, unless it isn't wanted any more
				settle(time.Second)
			case <-time.After(time.Hour):
				t.Fatal("no runner starts")
			}
			for len(served) > 0 {
				order = append(order, <-served)
			}
		}
		if want := []string{"a", "c", "b", "a", "a", "a", "a"}; !slices.Equal(order, want) {
			t.Errorf("served were %q, want %q", order, want)
		}
	})
}
