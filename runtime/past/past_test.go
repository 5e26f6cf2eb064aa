package past

import (
	"strconv"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestTheLatestRunnersAreKept(t *testing.T) {
	var r Runners
	if _, ok := r.Find("0"); ok {
		t.Error("one is known at the beginning")
	}
	for i := range most {
		r.Add(runtime.RunnerID(strconv.Itoa(i)), Runner{Environment: "a"})
	}
	r.Add("0", Runner{Environment: "b"}) // again: nothing is dropped
	if first, ok := r.Find("0"); !ok || first.Environment != "b" || len(r.known) != most {
		t.Errorf("%+v, %t, %d known", first, ok, len(r.known))
	}
	r.Add("new", Runner{})
	if _, ok := r.Find("0"); ok || len(r.known) != most || len(r.order) != most {
		t.Errorf("the oldest is known: %t, of %d and %d", ok, len(r.known), len(r.order))
	}
	if _, ok := r.Find("1"); !ok {
		t.Error("another one was dropped too")
	}
	var all []Runner
	for runner := range r.All() {
		all = append(all, runner)
	}
	if len(all) != most || all[most-1].Environment != "" {
		t.Errorf("%d, the last %+v", len(all), all[len(all)-1])
	}
}
