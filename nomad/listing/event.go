package listing

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/agent"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
)

// Events returns the latest events of allocations' tasks, together with others, in order of time.
func Events(allocations []*api.AllocationListStub, others ...runtime.TaskEvent) []runtime.TaskEvent {
	var all []runtime.TaskEvent
	for _, a := range allocations {
		for _, task := range a.TaskStates {
			for _, event := range task.Events {
				all = append(all, translate(event)...)
			}
		}
	}
	all = append(all, others...)
	slices.SortStableFunc(all, func(a, b runtime.TaskEvent) int { return a.At.Compare(b.At) })
	all = slices.CompactFunc(all, func(a, b runtime.TaskEvent) bool { return a.Kind == b.Kind && a.Detail == b.Detail })
	return all[max(0, len(all)-runtime.KeptTaskEvents):]
}

// translate converts an event for clients, without Nomad's texts, which may contain paths of a node.
func translate(event *api.TaskEvent) []runtime.TaskEvent {
	ours := runtime.TaskEvent{At: time.Unix(0, event.Time)}
	switch event.Type {
	case api.TaskNotRestarting, api.TaskKilled:
		return nil // other events report the same
	case api.TaskReceived:
		ours.Kind = runtime.TaskPlaced
	case api.TaskSetup, api.TaskBuildingTaskDir:
		ours.Kind = runtime.TaskPreparing
	case api.TaskDownloadingArtifacts:
		ours.Kind = runtime.TaskFetching
	case api.TaskStarted:
		ours.Kind = runtime.TaskStarted
	case api.TaskRestarting:
		ours.Kind, ours.Detail = runtime.TaskRestarting, delay(event.Details["start_delay"])
	case api.TaskKilling:
		ours.Kind = runtime.TaskStopping
	case api.TaskTerminated:
		ours.Kind, ours.Detail = runtime.TaskExited, exit(event)
		if event.Details["oom_killed"] == "true" {
			ours.Kind, ours.Detail = runtime.TaskOutOfMemory, ""
		}
	case api.TaskDriverFailure:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its driver couldn't start it"
		// Nomad's text only selects the message. Clients never see it.
		if strings.Contains(strings.ToLower(event.DisplayMessage), "volumes are not enabled") {
			ours.Detail = "its node allows no volumes, which --nomad-workspace volume needs"
		}
		if text := event.DisplayMessage; strings.Contains(text, "/bin/sh") && (strings.Contains(text, "no such file") || strings.Contains(text, "not found")) {
			ours.Detail = "its driver couldn't start it: its image has no /bin/sh, which is needed to wait for the agent (--nomad-stream-agent)"
		}
		if text := strings.ToLower(event.DisplayMessage); strings.Contains(text, "failed to pull") || strings.Contains(text, "failed to create image") {
			ours.Detail = "its driver couldn't get its image" // docker and podman
		}
	case api.TaskSetupFailure:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its node couldn't prepare the task"
	case api.TaskArtifactDownloadFailed:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its node couldn't download the agent from this server"
	case api.TaskFailedValidation:
		ours.Kind, ours.Detail = runtime.TaskStartFailed, "its node rejected the task"
	// Only messages about an image are useful to clients. Nomad's text isn't passed on.
	case api.TaskDriverMessage:
		if !strings.Contains(strings.ToLower(event.DisplayMessage), "image") {
			return nil
		}
		ours.Kind = runtime.TaskFetching
	default:
		ours.Kind, ours.Detail = runtime.TaskOther, "Nomad calls it "+connection.FirstLine(event.Type)
	}
	return []runtime.TaskEvent{ours}
}

func exit(event *api.TaskEvent) string {
	if signal := event.Details["signal"]; signal != "" && signal != "0" {
		return "by signal " + signal
	}
	code := cmp.Or(event.Details["exit_code"], "0")
	switch code {
	case strconv.Itoa(agent.ExitNotRoot):
		return "because it isn't root in its task: check --nomad-user, or the user in your own template"
	case strconv.Itoa(agent.ExitNoNamespaces):
		return "because its node doesn't allow user namespaces, which are needed to limit what programs write: see the driver exec in docs/guides/nomad.md"
	}
	return "with exit code " + code
}

func delay(text string) string {
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return ""
	}
	return "in " + time.Duration(ns).Round(time.Millisecond).String()
}
