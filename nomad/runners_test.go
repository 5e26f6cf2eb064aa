package nomad

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/listing"
	"github.com/rockpool/rockpool/runtime"
)

func TestEventsIncludeTheServersOwn(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	e := entry{
		ready: &listing.Readiness{At: at.Add(2 * time.Second)}, goneAt: at.Add(5 * time.Second),
		runner: runtime.Runner{State: runtime.RunnerGone, GoneReason: runtime.GoneDrained, Message: "its node is being drained"},
	}
	e.allocations = []*api.AllocationListStub{{TaskStates: map[string]*api.TaskState{"runner": {Events: []*api.TaskEvent{
		{Type: api.TaskStarted, Time: at.UnixNano()}, {Type: api.TaskKilling, Time: at.Add(3 * time.Second).UnixNano()},
	}}}}}
	kinds := func() (all []string) {
		for _, event := range e.events(runtime.TaskEvent{At: at.Add(time.Minute), Kind: runtime.TaskEnded}) {
			all = append(all, string(event.Kind)+" "+event.Detail)
		}
		return all
	}
	if diff := cmp.Diff([]string{"STARTED ", "READY ", "STOPPING ", "GONE its node is being drained", "ENDED "}, kinds()); diff != "" {
		t.Error(diff)
	}
}
