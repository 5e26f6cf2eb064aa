package fairqueue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rockpool/rockpool/runtime"
)

func TestGateAdmitsByPriorityThenByTurns(t *testing.T) {
	for name, test := range map[string]struct {
		waiting []string // environment, or tenant/environment, and ! for one that a claim waits for
		leave   int      // who gives up
		raised  int      // the caller whose claim arrives later
		lowered int      // whose claim is gone
		order   string
	}{
		"claims and refills: claims first":    {[]string{"x", "x!", "x!", "x", "x!"}, 2, -1, -1, "-bead"},
		"several environments: in turns":      {[]string{"x", "x", "x", "y", "y", "z"}, -1, -1, -1, "adfbec"},
		"several tenants: in turns":           {[]string{"t/x", "t/y", "t/z", "t/x", "u/x", "u/x"}, -1, -1, -1, "aebfcd"},
		"claims of tenants: in turns":         {[]string{"t/x!", "t/y!", "t/z!", "u/x", "v/x!"}, -1, -1, -1, "aebcd"},
		"claims of environments: in turns":    {[]string{"x!", "x!", "x!", "y", "z!"}, -1, -1, -1, "aebcd"},
		"later claim: its environment first":  {[]string{"x", "x", "x", "y"}, -1, 2, -1, "cadb"},
		"claim arrives and ends: usual order": {[]string{"x", "x", "x", "y"}, -1, 1, 1, "adbc"},
		"caller gives up its turn: the next":  {[]string{"x", "y"}, 0, 0, -1, "-b"},
		"claim ends: the other claim first":   {[]string{"x!", "y!"}, -1, -1, 0, "ba"},
	} {
		synctest.Test(t, func(t *testing.T) {
			gate := NewLimiter(1)
			leave, err := gate.Waiter("", "other", runtime.PriorityRefill).Enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			order := ""
			leaving, giveUp := context.WithCancelCause(t.Context())
			var passes []*Waiter
			for i, who := range test.waiting {
				ctx := t.Context()
				if i == test.leave {
					ctx = leaving
				}
				environment, urgent := strings.CutSuffix(who, "!")
				priority := runtime.PriorityRefill
				if urgent {
					priority = runtime.PriorityWaiting
				}
				pass := passOf(gate, environment, priority)
				passes = append(passes, pass)
				go func() {
					leave, err := pass.Enter(ctx)
					if err != nil {
						if order += "-"; !errors.Is(err, errGaveUp) {
							t.Errorf("got %v, want %v", err, errGaveUp)
						}
						return
					}
					order += "abcdef"[i : i+1]
					leave()
				}()
				synctest.Wait()
			}
			giveUp(errGaveUp)
			synctest.Wait()
			if test.raised >= 0 {
				passes[test.raised].SetPriority(runtime.PriorityWaiting)
			}
			if test.lowered >= 0 {
				passes[test.lowered].SetPriority(runtime.PriorityRefill)
			}
			if waiting := gate.Waiting(); waiting != strings.Count(test.order, "")-1-strings.Count(test.order, "-") {
				t.Errorf("%s: %d wait", name, waiting)
			}
			leave()
			synctest.Wait()
			if order != test.order || gate.free != 1 || gate.Waiting() > 0 {
				t.Errorf("%s: the order is %s, %d are free, %d wait", name, order, gate.free, gate.Waiting())
			}
		})
	}
}

// of returns an environment from "tenant/environment", or from an environment alone.
func passOf(gate *Limiter, name string, priority runtime.Priority) *Waiter {
	tenant, key, found := strings.Cut(name, "/")
	if !found {
		tenant, key = "", name
	}
	return gate.Waiter(runtime.TenantID(tenant), key, priority)
}

var errGaveUp = errors.New("gave up")

// TestLimiterLosesNoSlot checks that a pass that is admitted just when it gives up releases its slot.
func TestLimiterLosesNoSlot(t *testing.T) {
	gate := NewLimiter(1)
	for range 1000 {
		leave, err := passOf(gate, "a", 0).Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if leave, err := passOf(gate, "b", 0).Enter(ctx); err == nil {
				leave()
			}
		}()
		go giveUp()
		leave()
		<-ended
	}
	if gate.free != 1 || gate.Waiting() > 0 {
		t.Errorf("%d are free, %d wait", gate.free, gate.Waiting())
	}
}

// TestPassKeepsItsPriority checks that a runner that starts again has its latest priority.
func TestPassKeepsItsPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewLimiter(1)
		late := passOf(gate, "a", runtime.PriorityRefill)
		leave, err := late.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		late.SetPriority(runtime.PriorityWaiting)
		order := make(chan string, 2)
		for name, pass := range map[string]*Waiter{"refill": passOf(gate, "b", runtime.PriorityRefill), "again": late} {
			go func() {
				if leave, err := pass.Enter(t.Context()); err == nil {
					order <- name
					leave()
				}
			}()
		}
		synctest.Wait()
		leave()
		if first, second := <-order, <-order; first != "again" || second != "refill" {
			t.Errorf("%s was served before %s", first, second)
		}
	})
}

// Priority returns the priority that was set last.
func (w *Waiter) Priority() runtime.Priority {
	w.limiter.mu.Lock()
	defer w.limiter.mu.Unlock()
	return w.priority
}
