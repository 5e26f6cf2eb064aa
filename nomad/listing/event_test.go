package listing

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/runtime"
)

// None of Nomad's own texts is reported, since they contain paths of its nodes.
func TestEventsAreReportedWithoutNomadsTexts(t *testing.T) {
	const path = "/opt/nomad/alloc/1234/secret"
	at := func(s int64) time.Time { return time.Unix(1_700_000_000+s, 0) }
	var events []*api.TaskEvent
	add := func(kind string, details map[string]string) {
		n := int64(len(events)) + 1
		events = append(events, &api.TaskEvent{Type: kind, Time: at(n).UnixNano(), Message: path, DisplayMessage: path + " image", Details: details})
	}
	add(api.TaskReceived, nil)
	add(api.TaskSetup, nil)
	add(api.TaskBuildingTaskDir, nil) // the same again
	add(api.TaskDownloadingArtifacts, nil)
	add(api.TaskDriverMessage, nil) // likewise
	add(api.TaskDriverFailure, map[string]string{"driver_error": path})
	add(api.TaskNotRestarting, nil)
	add(api.TaskRestarting, map[string]string{"start_delay": "1050000000"})
	add(api.TaskStarted, nil)
	add(api.TaskTerminated, map[string]string{"exit_code": "137", "signal": "9"})
	add(api.TaskTerminated, map[string]string{"oom_killed": "true", "exit_code": "137"})
	add(api.TaskTerminated, map[string]string{"exit_code": "3", "signal": "0"})
	add(api.TaskSetupFailure, nil)
	add(api.TaskArtifactDownloadFailed, nil)
	add(api.TaskFailedValidation, nil)
	add(api.TaskKilling, nil)
	add(api.TaskKilled, nil)
	add(api.TaskLeaderDead, nil)
	told := func(from, to int) []string {
		one := []*api.AllocationListStub{{TaskStates: map[string]*api.TaskState{"runner": {Events: events[from:to]}}}}
		var all []string
		for _, event := range Events(one) {
			all = append(all, string(event.Kind)+" "+event.Message())
		}
		return all
	}
	want := []string{
		"PLACED It was placed on a machine.", "PREPARING Its sandbox is being prepared.", "FETCHING Its image or its agent is being fetched.",
		"START_FAILED It could not be started: its driver couldn't start it.", "RESTARTING It is being restarted: in 1.05s.",
		"STARTED Its first process was started.", "EXITED Its agent exited: by signal 9.",
	}
	if diff := cmp.Diff(want, told(0, 10)); diff != "" {
		t.Error(diff)
	}
	want = []string{
		"OUT_OF_MEMORY It ran out of memory, and its agent was killed.", "EXITED Its agent exited: with exit code 3.",
		"START_FAILED It could not be started: its node couldn't prepare the task.",
		"START_FAILED It could not be started: its node couldn't download the agent from this server.",
		"START_FAILED It could not be started: its node rejected the task.",
		"STOPPING It is being stopped.", "OTHER Another event: Nomad calls it Leader Task Dead.",
	}
	if diff := cmp.Diff(want, told(10, len(events))); diff != "" {
		t.Error(diff)
	}
	if all := told(0, len(events)); len(all) != runtime.KeptTaskEvents || all[len(all)-1] != want[len(want)-1] {
		t.Errorf("of many the latest aren't told: %q", all)
	}
}
