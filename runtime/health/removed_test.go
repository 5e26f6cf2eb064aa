package health

import (
	"strconv"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestTheLatestRunnersAreKept(t *testing.T) {
	var r RemovedRunners
	if _, ok := r.Find("0"); ok {
		t.Error("one is known at the beginning")
	}
	for i := range mostRemoved {
		r.Add(runtime.RunnerID(strconv.Itoa(i)), RemovedRunner{Environment: "a"})
	}
	r.Add("0", RemovedRunner{Environment: "b"}) // again: nothing is dropped
	if first, ok := r.Find("0"); !ok || first.Environment != "b" || len(r.known) != mostRemoved {
		t.Errorf("%+v, %t, %d known", first, ok, len(r.known))
	}
	r.Add("new", RemovedRunner{})
	if _, ok := r.Find("0"); ok || len(r.known) != mostRemoved || len(r.order) != mostRemoved {
		t.Errorf("the oldest is known: %t, of %d and %d", ok, len(r.known), len(r.order))
	}
	if _, ok := r.Find("1"); !ok {
		t.Error("another one was dropped too")
	}
	var all []RemovedRunner
	for runner := range r.All() {
		all = append(all, runner)
	}
	if len(all) != mostRemoved || all[mostRemoved-1].Environment != "" {
		t.Errorf("%d, the last %+v", len(all), all[len(all)-1])
	}
}
