package fairqueue

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

type item struct {
	id       int
	tenant   runtime.TenantID
	key      string
	priority runtime.Priority
	since    int
}

// TestQueueWalk compares the queue with a plain list. Each item has the highest priority and is the
// oldest of its key. No tenant is served again before every other waiting one with that priority,
// however many keys it has. The same holds for the keys of one tenant.
func TestQueueWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := Queue[string, *item]{Compare: func(a, b *item) int { return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id)) }}
		var model []*item
		passed := map[string]int{} // how often others were served since a lane's or a tenant's first waited
		created := 0
		tenant := func(e *item) string { return fmt.Sprint(e.priority, e.tenant) }
		key := func(e *item) string { return fmt.Sprint(e.priority, e.tenant, "/", e.key) }
		forget := func(e *item) {
			for i, o := range model {
				if o == e {
					model = append(model[:i], model[i+1:]...)
					break
				}
			}
			for _, name := range []func(*item) string{tenant, key} {
				if !slices.ContainsFunc(model, func(o *item) bool { return name(o) == name(e) }) {
					delete(passed, name(e))
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				created++
				e := &item{
					id:       created,
					tenant:   rapid.SampledFrom([]runtime.TenantID{"", "t", "u"}).Draw(t, "tenant"),
					key:      rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key"),
					priority: runtime.Priority(rapid.IntRange(1, 3).Draw(t, "priority")),
					since:    rapid.IntRange(0, 3).Draw(t, "since"),
				}
				q.Push(e.tenant, e.key, e.priority, e)
				model = append(model, e)
			},
			"pop": func(t *rapid.T) {
				e, ok := q.Pop()
				if ok == (len(model) == 0) {
					t.Fatalf("popped %+v of %d", e, len(model))
				}
				if !ok {
					return
				}
				tenants, lanes := map[string]bool{}, map[string]bool{}
				for _, o := range model {
					if o.priority > e.priority {
						t.Fatalf("%+v was served before %+v", e, o)
					}
					if o != e && key(o) == key(e) && (o.since < e.since || o.since == e.since && o.id < e.id) {
						t.Fatalf("%+v was served before the older %+v", e, o)
					}
					if o.priority == e.priority {
						tenants[tenant(o)] = true
					}
					if tenant(o) == tenant(e) {
						lanes[key(o)] = true
					}
				}
				passes := func(all map[string]bool, served string, most int) {
					for name := range all {
						if name == served {
							passed[name] = 0
						} else if passed[name]++; passed[name] > most {
							t.Fatalf("%s was passed %d times", name, passed[name])
						}
					}
				}
				passes(tenants, tenant(e), 2)
				passes(lanes, key(e), 3)
				forget(e)
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				e := rapid.SampledFrom(model).Draw(t, "item")
				if !q.Remove(e.tenant, e.key, e.priority, e) || q.Remove(e.tenant, e.key, e.priority, e) {
					t.Fatalf("%+v isn't removed once", e)
				}
				forget(e)
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) || len(q.levels) > 0 != (len(model) > 0) {
					t.Fatalf("length %d of %d, %d levels", q.Len(), len(model), len(q.levels))
				}
				for _, l := range q.levels {
					if l.tenants.Len() == 0 {
						t.Fatal("an empty level is kept")
					}
					for lane := range l.tenants.All() {
						if lane.Queue.Len() == 0 {
							t.Fatal("an empty tenant is kept")
						}
					}
				}
			},
		})
	})
}

// Top returns the highest priority, and false if the queue is empty.
func (q *Queue[K, T]) Top() (runtime.Priority, bool) {
	if len(q.levels) == 0 {
		return 0, false
	}
	return q.levels[0].Priority, true
}
