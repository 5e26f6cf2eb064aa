package scheduler

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// Against a plain list: what comes is of the highest priority, the oldest of
// its environment, and no environment comes again before every other one of
// that priority that waited all the while.
func TestFairWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fair
		var model []*Evaluation
		passed := map[string]int{} // how often others came since a lane's first waited
		created := uint64(0)
		key := func(e *Evaluation) string { return fmt.Sprint(e.Priority, e.Environment) }
		forget := func(e *Evaluation) {
			for i, o := range model {
				if o == e {
					model = append(model[:i], model[i+1:]...)
					break
				}
			}
			for _, o := range model {
				if key(o) == key(e) {
					return
				}
			}
			delete(passed, key(e))
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				created++
				e := &Evaluation{
					ID: runtime.EvaluationID(fmt.Sprint(created)), CreateIndex: created,
					Environment: runtime.EnvironmentID(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "environment")),
					Priority:    runtime.Priority(rapid.IntRange(1, 3).Draw(t, "priority")),
					since:       rapid.Uint64Range(0, 3).Draw(t, "since"),
				}
				f.push(e)
				model = append(model, e)
			},
			"pop": func(t *rapid.T) {
				e := f.pop()
				if (e == nil) != (len(model) == 0) {
					t.Fatalf("popped %+v of %d", e, len(model))
				}
				if e == nil {
					return
				}
				lanes := map[string]bool{}
				for _, o := range model {
					if o.Priority > e.Priority {
						t.Fatalf("%+v came before %+v", e, o)
					}
					if o != e && key(o) == key(e) && (o.since < e.since || o.since == e.since && o.CreateIndex < e.CreateIndex) {
						t.Fatalf("%+v came before the older %+v", e, o)
					}
					if o.Priority == e.Priority {
						lanes[key(o)] = true
					}
				}
				for lane := range lanes {
					if lane == key(e) {
						passed[lane] = 0
					} else if passed[lane]++; passed[lane] > 3 {
						t.Fatalf("%s was passed %d times", lane, passed[lane])
					}
				}
				forget(e)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				e := rapid.SampledFrom(model).Draw(t, "evaluation")
				if !f.remove(e) || f.remove(e) {
					t.Fatalf("%+v isn't removed once", e)
				}
				forget(e)
			},
			"": func(t *rapid.T) {
				if top, ok := f.top(); f.length != len(model) || ok != (len(model) > 0) || !ok && top != 0 {
					t.Fatalf("length %d of %d, top %d", f.length, len(model), top)
				}
				for _, l := range f.levels {
					if l.lanes.Len() == 0 {
						t.Fatal("an empty level is kept")
					}
				}
			},
		})
	})
}
