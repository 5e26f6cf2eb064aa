package listing

import (
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
)

// alloc returns a running allocation with changes.
func alloc(id string, index uint64, change ...func(*api.AllocationListStub)) *api.AllocationListStub {
	a := &api.AllocationListStub{
		ID: id, CreateIndex: index, NodeID: "n1", DesiredStatus: api.AllocDesiredStatusRun, ClientStatus: api.AllocClientStatusRunning,
		TaskStates: map[string]*api.TaskState{job.TaskName: {Events: []*api.TaskEvent{{Type: api.TaskStarted, Time: 1}}}},
	}
	for _, f := range change {
		f(a)
	}
	return a
}

func client(status string) func(*api.AllocationListStub) {
	return func(a *api.AllocationListStub) { a.ClientStatus = status }
}

func desired(status, description string) func(*api.AllocationListStub) {
	return func(a *api.AllocationListStub) { a.DesiredStatus, a.DesiredDescription = status, description }
}

func event(kind, message string, details ...string) func(*api.AllocationListStub) {
	return func(a *api.AllocationListStub) {
		task := a.TaskStates[job.TaskName]
		e := &api.TaskEvent{Type: kind, Time: int64(len(task.Events) + 1), DisplayMessage: message, Details: map[string]string{}}
		for i := 0; i < len(details); i += 2 {
			e.Details[details[i]] = details[i+1]
		}
		task.Events = append(task.Events, e)
	}
}

func restartsOf(n uint64) func(*api.AllocationListStub) {
	return func(a *api.AllocationListStub) { a.TaskStates[job.TaskName].Restarts = n }
}

func TestRunnerOutcomes(t *testing.T) {
	const (
		starting, idle, gone = runtime.RunnerStarting, runtime.RunnerIdle, runtime.RunnerGone
		stop, run            = api.AllocDesiredStatusStop, api.AllocDesiredStatusRun
		failed, complete     = api.AllocClientStatusFailed, api.AllocClientStatusComplete
	)
	known := &Readiness{Allocation: "a1", Index: 20}
	found := &Readiness{Index: 20} // by a later server
	on := func(all ...*api.AllocationListStub) []*api.AllocationListStub { return all }
	oom := event(api.TaskTerminated, "", "oom_killed", "true", "exit_code", "137")
	for name, test := range map[string]struct {
		Evidence
		state  runtime.RunnerState
		reason runtime.GoneReason
		says   string
		at     string
	}{
		"registered, nothing listed: starting":                 {Evidence{}, starting, "", "", ""},
		"evaluation blocked: starting":                         {Evidence{Evaluations: []*api.Evaluation{{Status: api.EvalStatusBlocked}}}, starting, "", "it waits for free resources", ""},
		"evaluation failed: start failed":                      {Evidence{Evaluations: []*api.Evaluation{{Status: api.EvalStatusFailed}}}, gone, runtime.GoneStartFailed, "Nomad's scheduler gave up: Nomad gives no reason", ""},
		"job stopped before it was ready: stopped outside":     {Evidence{Stopped: true, Allocations: on(alloc("a1", 10))}, gone, runtime.GoneStoppedOutside, "its job was stopped outside of Rockpool", ""},
		"job purged before it was ready: stopped outside":      {Evidence{Purged: true}, gone, runtime.GoneStoppedOutside, "its job was stopped outside of Rockpool", ""},
		"image being pulled: starting":                         {Evidence{Allocations: on(alloc("a1", 10, client("pending"), event("Driver", "Downloading image")))}, starting, "", "Downloading image", "a1"},
		"Nomad's own text: starting without a message":         {Evidence{Allocations: on(alloc("a1", 10, client("pending"), event("Driver", "/opt/nomad is busy")))}, starting, "", "", "a1"},
		"task restarting: starting":                            {Evidence{Allocations: on(alloc("a1", 10, client("pending"), event(api.TaskRestarting, "/opt/nomad", "start_delay", "1050000000")))}, starting, "", "its task will be restarted in 1.05s", "a1"},
		"running, agent silent: starting":                      {Evidence{Allocations: on(alloc("a1", 10))}, starting, "", "", "a1"},
		"image can't be pulled, job dead: start failed":        {Evidence{Dead: true, Allocations: on(alloc("a1", 10, client(failed), event(api.TaskDriverFailure, "Failed to pull `x`: https://registry/?token=1"), event("Not Restarting", "x")))}, gone, runtime.GoneStartFailed, "its driver couldn't get its image; see the server's log", ""},
		"allocation failed, job alive: starting":               {Evidence{Allocations: on(alloc("a1", 10, client(failed), event(api.TaskDriverFailure, "/opt/nomad")))}, starting, "", "Nomad will place it again: its driver couldn't start it; see the server's log", ""},
		"allocation failed, a next one runs: starting there":   {Evidence{Allocations: on(alloc("a2", 12), alloc("a1", 10, client(failed)))}, starting, "", "", "a2"},
		"allocation stopped before it was ready: start failed": {Evidence{Allocations: on(alloc("a1", 10, desired(stop, "x")))}, gone, runtime.GoneStartFailed, "its allocation was stopped outside of Rockpool", ""},
		"out of memory before it was ready: out of memory":     {Evidence{Dead: true, Allocations: on(alloc("a1", 10, client(failed), oom))}, gone, runtime.GoneOutOfMemory, "its memory was full, and its agent was killed", ""},
		"third allocation runs: starting there": {Evidence{Allocations: on(alloc("a1", 10, client(failed)), alloc("a2", 12, client("lost")), alloc("a3", 14))},
			starting, "", "", "a3"},

		"ready and running: idle":                                   {Evidence{Ready: known, Allocations: on(alloc("a1", 10))}, idle, "", "", "a1"},
		"ready, status still pending: idle":                         {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client("pending")))}, idle, "", "", "a1"},
		"ready by an earlier server: idle":                          {Evidence{Ready: found, Allocations: on(alloc("a1", 10))}, idle, "", "", "a1"},
		"ready by an earlier server, third allocation: idle there":  {Evidence{Ready: found, Allocations: on(alloc("a3", 14), alloc("a1", 10, client(failed)), alloc("a2", 12, client(failed)))}, idle, "", "", "a3"},
		"rescheduled after a failure: rescheduled":                  {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client(failed), desired(stop, "alloc was rescheduled because it failed")), alloc("a2", 30))}, gone, runtime.GoneRescheduled, "its task failed, and Nomad placed it again: its task ended", ""},
		"newer allocation than the variable: rescheduled":           {Evidence{Ready: found, Allocations: on(alloc("a1", 10), alloc("a2", 30))}, gone, runtime.GoneRescheduled, "Nomad placed it on a node again, so its files and processes are lost", ""},
		"own allocation collected, a newer one: rescheduled":        {Evidence{Ready: known, Allocations: on(alloc("a3", 30))}, gone, runtime.GoneRescheduled, "Nomad placed it on a node again, so its files and processes are lost", ""},
		"task restarted since it was ready: agent died":             {Evidence{Ready: known, Allocations: on(alloc("a1", 10, restartsOf(1)))}, gone, runtime.GoneAgentDied, "its agent was restarted, so its processes are lost", ""},
		"task restarted before it was ready: idle":                  {Evidence{Ready: &Readiness{Allocation: "a1", Restarts: 1, Index: 20}, Allocations: on(alloc("a1", 10, restartsOf(1)))}, idle, "", "", "a1"},
		"task restarted after running out of memory: out of memory": {Evidence{Ready: known, Allocations: on(alloc("a1", 10, restartsOf(1), oom))}, gone, runtime.GoneOutOfMemory, "its memory was full, and its agent was killed", ""},
		"allocation failed without memory: out of memory":           {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client(failed), oom))}, gone, runtime.GoneOutOfMemory, "its memory was full, and its agent was killed", ""},
		"agent killed by a signal: agent died":                      {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client(failed), event(api.TaskTerminated, "", "signal", "9", "exit_code", "137")))}, gone, runtime.GoneAgentDied, "its agent ended by signal 9", ""},
		"agent exited: agent died":                                  {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client(complete), event(api.TaskTerminated, "", "signal", "0", "exit_code", "2")))}, gone, runtime.GoneAgentDied, "its agent ended with exit code 2", ""},
		"node down: unknown":                                        {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client("lost"), desired(stop, "alloc is lost since its node is down")), alloc("a2", 30))}, gone, runtime.GoneUnknown, "its node was lost", ""},
		"node disconnected: unknown":                                {Evidence{Ready: known, Allocations: on(alloc("a1", 10, client("unknown")))}, gone, runtime.GoneUnknown, "its node is disconnected", ""},
		"evicted: evicted":                                          {Evidence{Ready: known, Allocations: on(alloc("a1", 10, desired(api.AllocDesiredStatusEvict, "Preempted by alloc ID x")))}, gone, runtime.GoneEvicted, "it was preempted by a job of a higher priority", ""},
		"node drained: drained": {Evidence{Ready: known, Draining: func(n string) bool { return n == "n1" }, Allocations: on(alloc("a1", 10, desired(stop, "alloc is being migrated")), alloc("a2", 30))},
			gone, runtime.GoneDrained, "its node is being drained", ""},
		"allocation stopped, node not drained: stopped outside": {Evidence{Ready: known, Allocations: on(alloc("a1", 10, desired(stop, "alloc is being migrated")), alloc("a2", 30))}, gone, runtime.GoneStoppedOutside, "its allocation was stopped outside of Rockpool", ""},
		"job stopped: stopped outside":                          {Evidence{Ready: known, Stopped: true, Allocations: on(alloc("a1", 10))}, gone, runtime.GoneStoppedOutside, "its job was stopped outside of Rockpool", ""},
		"job purged: stopped outside":                           {Evidence{Ready: known, Purged: true, Allocations: on(alloc("a1", 10))}, gone, runtime.GoneStoppedOutside, "its job was purged outside of Rockpool", ""},
		"no allocation, job alive: stopped outside":             {Evidence{Ready: known}, gone, runtime.GoneStoppedOutside, "its job was purged outside of Rockpool", ""},
		"no allocation, job dead: unknown":                      {Evidence{Ready: known, Dead: true}, gone, runtime.GoneUnknown, "Nomad no longer knows its allocation", ""},
		"allocation failed without events: agent died":          {Evidence{Ready: known, Allocations: on(alloc("a1", 10, func(a *api.AllocationListStub) { a.TaskStates = nil }, client(failed)))}, gone, runtime.GoneAgentDied, "its task ended", ""},
		"ready, without a description: idle":                    {Evidence{Ready: known, Allocations: on(alloc("a1", 10, desired(run, "")))}, idle, "", "", "a1"},
	} {
		o := OutcomeOf(test.Evidence)
		at := ""
		if o.Allocation != nil {
			at = o.Allocation.ID
		}
		if o.State != test.state || o.Reason != test.reason || o.Message != test.says || at != test.at {
			t.Errorf("%s: %s %s %q at %q\nwant %s %s %q at %q", name, o.State, o.Reason, o.Message, at, test.state, test.reason, test.says, test.at)
		}
	}
}

// Nomad's text about a failure is logged, once.
func TestNomadsTextsAreLogged(t *testing.T) {
	var before []*api.AllocationListStub
	var words []string
	for _, listed := range [][]*api.AllocationListStub{
		{alloc("a1", 10, client("pending"))},
		{alloc("a1", 10, client("failed"), event(api.TaskDriverFailure, "/opt/nomad"), event(api.TaskNotRestarting, "x"))},
		{alloc("a1", 10, client("failed"), event(api.TaskDriverFailure, "/opt/nomad")), alloc("a2", 12)},
	} {
		for _, a := range NewFailures(before, listed) {
			words = append(words, a.ID+" "+Failure(a))
		}
		before = listed
	}
	if len(words) != 1 || words[0] != "a1 driver failure: /opt/nomad" {
		t.Errorf("%q", words)
	}
}
